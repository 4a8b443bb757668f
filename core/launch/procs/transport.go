package procs

// How ranks in several processes reach each other.
const (
	// Auto is by shared memory where two are on one host, and else by TCP.
	Auto = "auto"
	Shm  = "shm"
	TCP  = "tcp"
)

// Transports names them, the one that is for all first.
func Transports() []string { return []string{Auto, Shm, TCP} }
