// Package wire is how two processes of one run meet and talk: a handshake in which
// both prove to be of the run, and notes over the connection that it leaves.
package wire
