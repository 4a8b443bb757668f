package procs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Found is what is known of this process among those that something else has started.
type Found struct {
	// Source is who says so: "Open MPI".
	Source string
	// Agent is this process's number, from 0, and Agents how many there are.
	Agent, Agents int
	// Local is this process's number among those of its host; -1 where nobody says.
	Local int
	// Job is what all of them are told, and no others.
	Job string
	// Places are where agent 0 may listen, host and port, in the order in which it tries;
	// none where all processes are on one host and meet there.
	Places []string
	// Network is how they reach each other where there are Places.
	Network Network
	// Deadline is that of Options.
	Deadline time.Duration
	// Share, where not nil, is told how many agents there are on this host.
	Share func(agents int)
	// Shared are directories that must be those of all agents.
	Shared []string
	// Carrier carries what ranks send each other by transport MPI.
	Carrier Carrier
	// Failed is that of Seat.
	Failed func(error)
}

// String is what is found, in words.
func (f *Found) String() string {
	return fmt.Sprintf("%s: agent %d of %d", f.Source, f.Agent, f.Agents)
}

// run names what all processes are of; no secret, and readable where two differ.
func (f *Found) run() string { return strings.TrimSpace(f.Source + " " + f.Job) }

// Query is what Find is asked.
type Query struct {
	// Expected is how many agents there must be.
	Expected int
	// Agent is this process's number; -1 is what a launcher says.
	Agent int
	// Network is what the user says of it.
	Network Network
	// Env looks up a variable of the environment.
	Env func(string) (string, bool)
}

// Find is what the user, or else the environment, says of this process, one of several
// that something has started. Launchers that say so must agree, but that one which
// started a single process, or one on each host, may have another inside.
func Find(q Query) (*Found, error) {
	f := &Found{Source: "the command line", Agent: q.Agent, Agents: q.Expected, Local: -1}
	var meet func(environment, *Network) ([]string, error)
	apart := true
	if q.Agent < 0 {
		l, said, err := q.launched()
		if err != nil {
			return nil, err
		}
		f, meet, apart = said.found, l.meet, said.apart
	}
	if f.Agent >= f.Agents {
		return nil, fmt.Errorf("agent=%d: must lie below expect-agents=%d", f.Agent, f.Agents)
	}
	f.Network = q.Network
	var err error
	switch at := q.Network.Rendezvous; {
	case at != "":
		f.Places = []string{at}
	case !apart:
		return f, nil
	case meet == nil:
		err = fmt.Errorf("%v, on several hosts: nothing says where agent 0 listens; give --rendezvous HOST:PORT", f)
	default:
		f.Places, err = meet(environment(q.Env), &q.Network)
	}
	if err == nil {
		err = q.Network.check(f)
	}
	return f, err
}

// launched is what the innermost launcher says.
func (q *Query) launched() (*launcher, *said, error) {
	var all []*said
	var by []launcher
	var known []string
	for _, l := range launchers() {
		known = append(known, l.String())
		if l.size == "" && len(all) > 0 {
			continue // of the process that the others were started by, perhaps
		}
		s, err := l.find(environment(q.Env), q.Expected)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", l.name, err)
		}
		if s != nil {
			all, by = append(all, s), append(by, l)
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("expect-agents=%d: no launcher has started this process: looked for %s, and --agent is not given", q.Expected, strings.Join(known, ", "))
	}
	// One that started a single process may have another inside, whichever is asked first.
	one := max(0, slices.IndexFunc(all, func(s *said) bool { return s.found.Agents > 1 }))
	first := all[one]
	for _, s := range all[one+1:] {
		f := s.found
		if f.Agents > 1 && f.Agents != first.groups && (f.Agent != first.found.Agent || f.Agents != first.found.Agents) {
			return nil, nil, fmt.Errorf("%v, and %v: must be the same", first.found, f)
		}
	}
	if f := first.found; f.Agents != q.Expected {
		return nil, nil, fmt.Errorf("expect-agents=%d: %s has started %d", q.Expected, f.Source, f.Agents)
	}
	return &by[one], first, nil
}

// environment looks up variables.
type environment func(string) (string, bool)

// text is a variable's value; empty where it is not set.
func (e environment) text(name string) string {
	text, _ := e(name)
	return text
}

// number is a variable's value, from 0; ok is false where it is not set or empty.
func (e environment) number(name string) (n int, ok bool, err error) {
	text := e.text(name)
	if text == "" {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 0 {
		return 0, false, fmt.Errorf("%s=%q: must be a number from 0", name, text)
	}
	return n, true, nil
}

// said is what one launcher says.
type said struct {
	found  *Found
	apart  bool // its processes are on several hosts
	groups int  // processes that started them, one on each host, where it says so; else -1
}

// find is what one launcher says; nil where it is not there.
func (l *launcher) find(env environment, expected int) (*said, error) {
	if _, ok := env(l.marks); !ok && l.marks != "" {
		return nil, nil // an allocation, say, in which nothing was started
	}
	rank, hasRank, err := env.number(l.rank)
	if err != nil {
		return nil, err
	}
	size, hasSize := expected, hasRank // where its variables do not say how many
	if l.size != "" {
		if size, hasSize, err = env.number(l.size); err != nil {
			return nil, err
		}
	}
	switch {
	case !hasRank && !hasSize:
		return nil, nil
	case !hasRank || !hasSize:
		return nil, fmt.Errorf("one of %s and %s is set: must be both", l.rank, l.size)
	case rank >= size:
		return nil, fmt.Errorf("%s=%d, %s=%d: must lie below it", l.rank, rank, cmp.Or(l.size, "expect-agents"), size)
	}
	s := &said{found: &Found{Source: l.name, Agent: rank, Agents: size, Local: -1}, groups: -1}
	if err := l.place(env, s); err != nil {
		return nil, err
	}
	var job []string
	for _, name := range l.job {
		if text := env.text(name); text != "" {
			job = append(job, name+"="+text)
		}
	}
	if len(job) == 0 && len(l.job) > 0 {
		return nil, fmt.Errorf("none of %s is set, by which its processes would find each other", strings.Join(l.job, ", "))
	}
	s.found.Job = strings.Join(job, " ")
	return s, nil
}

// place adds where a launcher's process is among those of its host, and whether there
// are other hosts.
func (l *launcher) place(env environment, s *said) error {
	size := s.found.Agents
	local, hasLocal, err := env.number(l.local)
	if err != nil {
		return err
	}
	here, hasHere, err := env.number(l.here)
	switch {
	case err != nil:
		return err
	case !hasLocal && l.needs && size > 1:
		return fmt.Errorf("%s=%d, and %s is not set", l.size, size, l.local)
	case hasLocal && hasHere && local >= here:
		return fmt.Errorf("%s=%d, %s=%d: must lie below it", l.local, local, l.here, here)
	case hasHere && here > size:
		return fmt.Errorf("%s=%d, %s=%d: cannot be more", l.here, here, l.size, size)
	}
	if hasLocal {
		s.found.Local = local
	}
	s.apart = hasHere && here != size || l.apart
	if l.more != nil {
		return l.more(env, s)
	}
	return nil
}
