//go:build unix

package procs

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// Carrier carries what ranks in several processes send each other, by something that
// whoever has started the processes gives them: MPI.
type Carrier interface {
	// Open has this process take part. It returns when all agents, so many, do.
	Open(agents int) error
	// Way is a way by which ranks meet as by another one, and whose links it carries.
	Way(engine.Way) engine.Way
	// Close is the end of this process's part.
	Close() error
}

// carrying is the part of an agent in what its Carrier does.
type carrying struct {
	open chan struct{} // closed when it is; nil where there is no carrier
	err  error         // why it is not
}

// carry has the carrier open, beside whatever else this agent does: it waits for the
// others, of which one may be lost.
func (a *agent) carry() {
	if a.Carrier == nil {
		return
	}
	a.carries.open = make(chan struct{})
	go func() {
		if a.carries.err = a.Carrier.Open(a.Agents); a.carries.err != nil {
			_ = a.tell(note{Kind: noteUnfit, Text: a.carries.err.Error()}) // who does not hear it is gone
		}
		close(a.carries.open)
	}()
}

// carried are the ways of this agent with the links of its carrier, once that is open.
func (a *agent) carried(ctx context.Context) ([]engine.Way, error) {
	select {
	case <-a.carries.open:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(a.Join):
		return nil, fmt.Errorf("%s: not all agents have begun with it within %v", MPI, a.Join)
	}
	if a.carries.err != nil {
		return nil, a.carries.err
	}
	ways, err := a.ways()
	for i := range ways {
		ways[i] = a.Carrier.Way(ways[i])
	}
	return ways, err
}

// carriesNoMore is the end of the carrier's part, if it had one.
func (a *agent) carriesNoMore() {
	if a.Carrier == nil {
		return
	}
	select {
	case <-a.carries.open:
		if a.carries.err == nil {
			_ = a.Carrier.Close() // this process ends, whatever others do
		}
	default: // it waits for others yet, and there is no way to have it not do so
	}
}
