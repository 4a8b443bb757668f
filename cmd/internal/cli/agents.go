package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// Placement says where the ranks of a run are and how they reach each other, as flags
// do.
type Placement struct {
	Transport string // one of Transports
	Launch    string // one of Launches
	Agents    int    // of ranks as processes
}

// Goroutines and Processes are what ranks can be.
const (
	Goroutines = "goroutines"
	Processes  = "procs"
)

// Launches names what ranks can be: goroutines of this process, or of several, which it
// starts.
func Launches() []string { return []string{Goroutines, Processes} }

// Flags adds the flags of a placement; agents says which number of them is meant by 0.
func (p *Placement) Flags(f *pflag.FlagSet, agents string) {
	f.StringVar(&p.Transport, "transport", Transports()[0], "how ranks reach each other: "+strings.Join(Transports(), ", ")+"; as processes always tcp")
	f.StringVar(&p.Launch, "launch", Goroutines, "what ranks are: goroutines of this process, or procs: of processes that this one starts")
	f.IntVar(&p.Agents, "agents", 0, "with --launch procs: processes, over which the ranks are dealt (default: "+agents+")")
}

// Check refuses flags that have no meaning together.
func (p *Placement) Check(flags *pflag.FlagSet) error {
	switch {
	case p.Launch != Goroutines && p.Launch != Processes:
		return Usagef("launch %q: known are %s", p.Launch, strings.Join(Launches(), ", "))
	case p.Launch == Goroutines && flags.Changed("agents"):
		return Usagef("agents=%d: belongs to --launch %s", p.Agents, Processes)
	case flags.Changed("agents") && p.Agents < 1:
		return Usagef("agents=%d: must be at least 1", p.Agents)
	case p.Launch == Processes && flags.Changed("transport") && p.Transport != tcpTransport:
		return Usagef("transport %q: ranks in several processes reach each other by %s", p.Transport, tcpTransport)
	}
	return nil
}

// Apart reports whether ranks are in processes of their own.
func (p *Placement) Apart() bool { return p.Launch == Processes }

// Share is what the environment of each of a number of agents says so that together
// they use the memory and processors that this process may use.
func Share(agents int) []string {
	all := runtime.GOMAXPROCS(0)
	// A rank that waits for its peers holds a thread for a while; with two there is
	// one more to go on with.
	out := []string{fmt.Sprintf("GOMAXPROCS=%d", min(all, max(2, all/agents)))}
	if bytes := Memory(); bytes > 0 {
		out = append(out, fmt.Sprintf("GOMEMLIMIT=%d", max(1, bytes/int64(agents))))
	}
	return out
}

// isAgent reports whether this process is an agent.
func isAgent() bool {
	seat, err := procs.Taken()
	return seat != nil || err != nil
}
