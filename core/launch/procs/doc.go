// Package procs runs the ranks of a plan in processes of their own: agents, each of
// which carries some of the ranks as goroutines. Whoever started them drives: it says
// what is to be run, and gets what the agents record at the end of each step, so that
// what a rank recorded until its process died is not lost.
//
// Agents are this program again with the same arguments, from which each finds out by
// itself what there is to run. Driver and agents meet over the loopback interface, with
// a token that only they know, and refuse each other where the hash of program and
// configuration is not the same. Ranks reach each other by package tcp; rank 0 of every
// world is in the first agent, whose port the driver tells the others.
//
// Where a launcher has started the processes (mpirun, srun, torchrun), the first of them
// drives, starts an agent of its own, and the others are agents: see Find.
//
// An agent ends when its driver does, or says nothing for too long. When an agent ends, or
// says nothing for too long, the driver names it and ends all.
package procs
