package procs

// How ranks in several processes reach each other.
const (
	// Auto is by shared memory where two are on one host, and else by TCP.
	Auto = "auto"
	Shm  = "shm"
	TCP  = "tcp"
	// MPI is by a Carrier, which nothing but its name chooses.
	MPI = "mpi"
)

// Transports names those that need nothing else, the one that is for all first.
func Transports() []string { return []string{Auto, Shm, TCP} }
