package procs

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// seatVariable tells a process that it is an agent, and which.
const seatVariable = "LOCKSTEP_AGENT"

// Seat is an agent's place in a team.
type Seat struct {
	Driver string `json:"driver"` // where it listens
	Run    string `json:"run"`
	Token  []byte `json:"token"`
	Agent  int    `json:"agent"` // from 0
	Agents int    `json:"agents"`
	// Join and Silence bound how long others may take to come, and say nothing.
	Join    time.Duration `json:"join"`
	Silence time.Duration `json:"silence"`
	// Apart says that agents may be on several hosts: then they listen where Network
	// says, and the driver must be heard too.
	Apart bool `json:"apart,omitempty"`
	// Leaves are files and directories of this run alone, which its driver removes, or
	// who is left when it cannot any more.
	Leaves []string `json:"leaves,omitempty"`

	Network Network `json:"-"`
	// Local is its number on its host, from 1, where a launcher says it; 0 else.
	Local int `json:"-"`
	// Share, where not nil, is told how many agents there are on this host.
	Share func(agents int) `json:"-"`
	// Shared are directories that must be those of all agents.
	Shared []string `json:"-"`
	// Carrier carries what ranks send each other by transport MPI.
	Carrier Carrier `json:"-"`
	// Failed, where not nil, is told why a task went wrong here, unless it did because of
	// another agent.
	Failed func(error) `json:"-"`

	started bool // by its driver, which then is there
}

// Taken is the seat of this process; nil where it is no agent.
func Taken() (*Seat, error) {
	text, ok := os.LookupEnv(seatVariable)
	if !ok {
		return nil, nil
	}
	s := &Seat{started: true}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("%s=%.60q: %w", seatVariable, text, err)
	}
	if s.Agents < 1 || s.Agent < 0 || s.Agent >= s.Agents || s.Join <= 0 || s.Silence <= 0 {
		return nil, fmt.Errorf("%s: agent %d of %d, join %v, silence %v: is no seat", seatVariable, s.Agent, s.Agents, s.Join, s.Silence)
	}
	return s, nil
}

// clear removes what the driver has made for its run. All agents of a host do, while the
// ranks of some still write: what one of them has missed another finds.
func (s *Seat) clear() {
	for _, path := range s.Leaves {
		for tries := 0; tries < 10 && s.owns(path) && os.RemoveAll(path) != nil; tries++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// owns reports whether something is not by now that of another run of the same job.
func (s *Seat) owns(path string) bool {
	var other Seat
	b, err := os.ReadFile(path)
	return err != nil || json.Unmarshal(b, &other) != nil || other.Run == s.Run
}

// Bereft is what an agent does when its driver has ended without a word.
func Bereft() {
	if s, err := Taken(); s != nil && err == nil {
		s.clear()
	}
}

// parentFile is the descriptor of the pipe that the driver holds the other end of.
const parentFile = 3

// EndWithParent calls end when whoever started this process, with a pipe behind the
// standard files, has ended. Without that pipe nobody has: it is an error.
func EndWithParent(end func()) error {
	parent := os.NewFile(parentFile, "parent")
	if info, err := parent.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return fmt.Errorf("%s is set, and no driver has started this process: unset it", seatVariable)
	}
	go func() {
		_, _ = io.Copy(io.Discard, parent) // nothing is ever written to it
		end()
	}()
	return nil
}
