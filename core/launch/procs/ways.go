//go:build unix

package procs

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
)

// ways are how a rank of this job is reached, and reaches others. The last one is that
// of what ranks say to rank 0, which may be on another host.
func (j *Job) ways() ([]engine.Way, error) {
	if j.transport == MPI {
		return j.a.carried(j.ctx)
	}
	var out []engine.Way
	if j.transport != TCP {
		w, err := shm.ListenOn(j.a.at.host)
		switch {
		case err == nil:
			out = append(out, w)
		case j.transport == Shm:
			return nil, err
		}
	}
	if j.transport == Shm {
		return out, nil
	}
	rest, err := j.a.ways()
	if err != nil {
		for _, w := range out {
			_ = w.Listener.Close() // nobody has been told of it
		}
		return nil, err
	}
	return append(out, rest...), nil
}

// linked notes a link of this process's.
func (j *Job) linked(way string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.links[way] = true
}

// Links names the ways by which ranks have reached each other so far, in all runs that
// have ended: a driver knows only then.
func (t *Team) Links() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.links))
}

// linked notes links of an agent's.
func (t *Team) linked(ways []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range ways {
		t.links[w] = true
	}
}
