package procs

// works are other works of agents than work, by what the test binary is.
var works = map[string]Work{soaks: soak{}.work, linked: chosen{}.work}
