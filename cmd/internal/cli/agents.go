package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// Placement says where the ranks of a run are and how they reach each other, as flags
// do.
type Placement struct {
	Transport string // one of Transports
	Launch    string // one of Launches
	Agents    int    // of ranks as processes
	Expect    int    // agents that a launcher has started, of which this process is one

	net    network
	found  *procs.Found
	memory int64  // of all agents, where this one has a share; 0 else
	here   int    // agents on this host, as soon as all that a launcher has started are there
	said   string // of an agent that is lost
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
	f.StringVar(&p.Transport, "transport", Transports()[0], "how ranks reach each other: "+strings.Join(Transports(), ", ")+"; auto is local, and between processes shm on a host, tcp else; mpi needs --expect-agents, and a binary of make build-mpi")
	f.StringVar(&p.Launch, "launch", Goroutines, "what ranks are: goroutines of this process, or procs: of processes that this one starts")
	f.IntVar(&p.Agents, "agents", 0, "with --launch procs: processes, over which the ranks are dealt (default: "+agents+")")
	f.IntVar(&p.Expect, "expect-agents", 0, "this process is one of so many that mpirun, srun, torchrun, an indexed Job or somebody has started, and ranks are in all of them")
	p.net.flags(f)
}

// Check refuses flags that have no meaning together.
func (p *Placement) Check(flags *pflag.FlagSet) error {
	switch {
	case p.Launch != Goroutines && p.Launch != Processes:
		return Usagef("launch %q: known are %s", p.Launch, strings.Join(Launches(), ", "))
	case p.Launch == Goroutines && flags.Changed("agents"):
		return Usagef("agents=%d: belongs to --launch %s", p.Agents, Processes)
	case flags.Changed("agents") && procs.CheckAgents(p.Agents, true) != nil:
		return AsUsage(procs.CheckAgents(p.Agents, true))
	case p.Transport == procs.MPI && carrier() == nil:
		return Usagef("transport %s: this program is built without it; make build-mpi builds one with it (on Debian it needs openmpi-bin and libopenmpi-dev)", p.Transport)
	case p.Transport == procs.MPI && !flags.Changed("expect-agents"):
		return Usagef("transport %s: belongs to --expect-agents: MPI is between processes that mpirun has started", p.Transport)
	case p.Transport == procs.MPI:
	case (p.Launch == Processes || flags.Changed("expect-agents")) && !slices.Contains(procs.Transports(), p.Transport):
		return Usagef("transport %q: ranks in several processes reach each other by %s", p.Transport, strings.Join(procs.Transports(), ", "))
	}
	if flags.Changed("expect-agents") {
		return p.find(flags)
	}
	for _, name := range NetworkFlags() {
		if flags.Changed(name) {
			return Usagef("--%s: belongs to --expect-agents", name)
		}
	}
	return nil
}

// CheckPlan refuses a plan whose sums need another transport.
func (p *Placement) CheckPlan(c plan.Plan) error {
	if c.Comm == names.MPI && p.Transport != procs.MPI {
		return Usagef("plan %s: comm=%s belongs to --transport %s, as its sums are MPI's; the transport is %s", c, c.Comm, procs.MPI, p.Transport)
	}
	return nil
}

// find makes the placement what a launcher says.
func (p *Placement) find(flags *pflag.FlagSet) (err error) {
	for _, other := range []string{"launch", "agents"} {
		if flags.Changed(other) {
			return Usagef("expect-agents=%d: a launcher has started them, and --%s says otherwise", p.Expect, other)
		}
	}
	switch data := flags.Lookup("data"); {
	case procs.CheckAgents(p.Expect, false) != nil:
		return Usagef("expect-%w", procs.CheckAgents(p.Expect, false))
	case data.Value.String() == "-":
		return Usagef("data -: a launcher gives stdin to one process; name a file")
	}
	q := procs.Query{Expected: p.Expect, Agent: p.net.agent, Env: os.LookupEnv}
	if q.Network, err = p.net.network(flags); err == nil {
		err = p.net.checkLocalRank()
	}
	switch {
	case err != nil:
	case flags.Changed("agent") && q.Agent < 0:
		err = fmt.Errorf("agent=%d: must be from 0", q.Agent)
	case flags.Changed("agent") && q.Network.Rendezvous == "":
		err = fmt.Errorf("agent=%d: --rendezvous HOST:PORT must say where agent 0 listens", q.Agent)
	default:
		p.found, err = procs.Find(q)
	}
	if err != nil {
		return AsUsage(err)
	}
	if p.Transport == procs.MPI {
		if q.Network.TLS != nil {
			return Usagef("transport %s: goes without TLS what ranks send each other, and --tls-cert asks for it", p.Transport)
		}
		p.found.Carrier = carrier()
	}
	p.Launch, p.Agents = Processes, p.Expect
	p.memory = Memory()
	p.found.Share = func(agents int) {
		p.here = agents
		processors, bytes := share(agents)
		runtime.GOMAXPROCS(processors)
		if bytes > 0 {
			debug.SetMemoryLimit(bytes)
		}
	}
	return nil
}

// Found is what has started the agents; nil where this process does. Deadline bounds how
// long they wait for each other.
func (p *Placement) Found(deadline time.Duration) *procs.Found {
	if p.found != nil {
		p.found.Deadline = deadline
	}
	return p.found
}

// Tells says on stderr that an agent is lost as soon as it is, where a launcher may end
// this process for that before it can say more; else nil.
func (p *Placement) Tells(stderr io.Writer, name string) func(*procs.Lost) {
	if p.found == nil {
		return nil
	}
	return func(lost *procs.Lost) {
		p.said = lost.Error()
		Tell(stderr, name, lost)
	}
}

// Unsaid is why agents have not come, unless Tells has said just that.
func (p *Placement) Unsaid(err error) error {
	if err.Error() == p.said {
		return nil
	}
	return err
}

// Ends says an error before agents are ended, where a launcher may end this process as
// soon as one of them is. What is left to say is given.
func (p *Placement) Ends(stderr io.Writer, name string, err error) error {
	if p.found == nil || err == nil || errors.As(err, new(*UsageError)) {
		return err
	}
	Tell(stderr, name, err)
	return nil
}

// Failures has an agent that a launcher has started say on its stderr why its part of a run
// went wrong, each cause that is worth it once: its driver says so too, but may be on another
// host. Those that their driver has started have its stderr.
func (p *Placement) Failures(stderr io.Writer, name string, worth func(error) bool) {
	if p.found == nil || p.found.Agent == 0 {
		return
	}
	var said sync.Map
	p.found.Failed = func(err error) {
		if _, before := said.LoadOrStore(err.Error(), true); !before && worth(err) {
			Tell(stderr, name, err)
		}
	}
}

// Source says who has started the agents, where that was another: " of Open MPI".
func (p *Placement) Source() string {
	if p.found == nil {
		return ""
	}
	return " of " + p.found.Source
}

// Seat is what this process serves as an agent, and nil where it is none. Shared are
// directories that must be those of all hosts.
func (p *Placement) Seat(deadline time.Duration, shared ...string) (procs.Server, error) {
	switch seat, err := procs.Taken(); {
	case err != nil:
		return nil, AsUsage(err)
	case seat != nil:
		if p.found != nil { // its driver is one of those that were found
			seat.Network, seat.Local, seat.Share, seat.Shared = p.found.Network, p.found.Local+1, p.found.Share, shared
			seat.Carrier = p.found.Carrier
		}
		return seat, nil
	case p.found != nil && p.found.Agent > 0:
		p.found.Shared = shared
		return p.Found(deadline), nil
	}
	return nil, nil
}

// Seating says where this process is among so many agents, as soon as that is known. Where
// a launcher gives no numbers on a host, those of all agents stand for them.
func (p *Placement) Seating(agents int) func() Seating {
	return func() Seating {
		seat, _ := procs.Taken() // a wrong one has been refused
		switch {
		case !p.Apart():
			return Seating{1, 0, 1}
		case p.found != nil && p.found.Local >= 0:
			return Seating{agents, p.found.Local, p.here}
		case p.found != nil:
			return Seating{agents, p.found.Agent, p.here}
		case seat != nil:
			return Seating{agents, seat.Agent, agents}
		}
		return Seating{agents, 0, agents} // a driver, which has no rank
	}
}

// Memory is how many bytes the ranks may use, wherever they are.
func (p *Placement) Memory() int64 { return cmp.Or(p.memory, Memory()) }

// Child reports whether this process is an agent that its driver has started, and that
// so has nothing to check.
func (p *Placement) Child() bool { return isAgent() }

// Apart reports whether ranks are in processes of their own.
func (p *Placement) Apart() bool { return p.Launch == Processes }

// Share is what the environment of each of a number of agents says so that together
// they use the memory and processors that this process may use. Those that something
// else has started hear how many are on their host when all have come.
func (p *Placement) Share(agents int) []string {
	if p.found != nil {
		return nil
	}
	processors, bytes := share(agents)
	out := []string{fmt.Sprintf("GOMAXPROCS=%d", processors)}
	if bytes > 0 {
		out = append(out, fmt.Sprintf("GOMEMLIMIT=%d", bytes))
	}
	return out
}

// share is what each of a number of agents may use; of memory 0 is any.
func share(agents int) (processors int, bytes int64) {
	all := runtime.GOMAXPROCS(0)
	if memory := Memory(); memory > 0 {
		bytes = max(1, memory/int64(agents))
	}
	// A rank that waits for its peers holds a thread for a while; with two there is
	// one more to go on with.
	return min(all, max(2, all/agents)), bytes
}

// isAgent reports whether this process is an agent.
func isAgent() bool {
	seat, err := procs.Taken()
	return seat != nil || err != nil
}
