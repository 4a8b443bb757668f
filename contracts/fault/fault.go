// Package fault breaks training runs from outside: every fault is a change of
// launch.Parts that decorates a communicator, backend, optimizer, updater,
// source or a rank's configuration. Decorators embed what they decorate, so
// whatever they do not break passes through. Production code knows none of them.
//
// Here are the hooks that faults hang on and the faults that several contracts
// use; those of one contract are in its suite. What a rank does through a
// communicator, an optimizer or a source is handed to a fault as a value (Call,
// Update, Share): it changes the value, does it once, twice or never, or does
// something else.
//
// Ranks are world ranks, steps count optimizer steps from 0, units are those of
// model.Layout ("embed", "block.0", "final", "head"). A fault may be applied to
// several runs, one after the other: what it remembers is made when it is applied.
package fault

import (
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
)

// Fault changes the parts that a run is made of.
type Fault func(*launch.Parts)

// All applies several faults in order, nil ones aside; later ones decorate
// earlier ones.
func All(faults ...Fault) Fault {
	return func(p *launch.Parts) {
		for _, f := range faults {
			if f != nil {
				f(p)
			}
		}
	}
}

// Into adds a fault to a case's run of the given role, whose result is then
// never shared. A case without such a run is a mistake in a list of mutants.
func Into(role contract.Role, f Fault) func(*suite.Case) {
	return func(c *suite.Case) {
		r, ok := c.Runs[role]
		if !ok {
			panic(fmt.Sprintf("contracts: case %s has no %s run", c.Name, role))
		}
		r.Key, r.Parts = "", All(r.Parts, f)
		c.Runs[role] = r
	}
}

// PerRank holds one value for every rank; ranks are goroutines. Its zero value
// holds zero values.
type PerRank[T any] struct {
	mu sync.Mutex
	of map[int]*T
}

// At is the value of a rank, which is its own to change.
func (p *PerRank[T]) At(rank int) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[int]*T{}
	}
	if p.of[rank] == nil {
		p.of[rank] = new(T)
	}
	return p.of[rank]
}
