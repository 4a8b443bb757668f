// Package launchers tests the examples beside it: scripts that start verify under
// Slurm, Open MPI and torchrun, and the manifest of a Kubernetes Job.
package launchers
