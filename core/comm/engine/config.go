//go:build unix

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/names"
)

// Config is how a rank joins a world.
type Config struct {
	Rank, Size int
	// Ways are how ranks reach each other: two of them by the first that reaches the one
	// that is dialed. The last is that of the control connections to rank 0.
	Ways []Way
	// Coordinator is where rank 0 listens, by the last way.
	Coordinator string
	// Run names the run, Identity what must be the same on all ranks (a hash of the
	// program and its configuration): who says another one is refused.
	Run, Identity string
	// Token is a secret that all ranks know; without one nobody has to prove it.
	Token []byte
	// Checksum adds a CRC-32C to every payload.
	Checksum bool
	// Rendezvous is how long ranks wait for each other to join; 0 is a minute.
	Rendezvous time.Duration
	// Silence is how long a rank may say nothing until it is lost; 0 is 30 s.
	Silence time.Duration

	// Linked, where not nil, hears the name of its way of each link that is made.
	Linked func(way string)

	comm.Options
}

// Defaults of Config.
const (
	DefaultRendezvous = time.Minute
	DefaultSilence    = 30 * time.Second
)

// validate fills defaults and refuses what has no meaning.
func (c *Config) validate() error {
	o, err := c.Options.Check()
	if err != nil {
		return err
	}
	c.Options = o
	switch {
	case c.Size < 1:
		return fmt.Errorf("comm: world of %d ranks: want at least 1", c.Size)
	case c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("comm: rank %d: must lie in [0,%d)", c.Rank, c.Size)
	case c.Rendezvous < 0 || c.Silence < 0:
		return fmt.Errorf("comm: rendezvous %v, silence %v: must not be negative", c.Rendezvous, c.Silence)
	case len(c.Ways) == 0 || slices.ContainsFunc(c.Ways, func(w Way) bool { return w.Listener == nil }):
		return fmt.Errorf("comm: rank %d has no way to reach others, or does not listen", c.Rank)
	case o.Algorithm == names.MPI && slices.ContainsFunc(c.Ways, func(w Way) bool { return w.Library == nil }):
		return fmt.Errorf("comm: algorithm %s: ranks reach each other by %s, which sums nothing", o.Algorithm, c.control().Name)
	case o.Turns != nil:
		return errors.New("comm: a schedule of ranks needs all of them in one process, without connections")
	}
	c.Rendezvous = cmp.Or(c.Rendezvous, DefaultRendezvous)
	c.Silence = cmp.Or(c.Silence, DefaultSilence)
	return nil
}

// close closes where this rank listens.
func (c *Config) close() {
	for _, w := range c.Ways {
		if w.Listener != nil {
			_ = w.Listener.Close() // nobody listens there any more, whatever it says
		}
	}
}

// Addr is where this rank listens by the way of the control connections: of rank 0 the
// Coordinator.
func (c *Config) Addr() string { return c.control().addr() }

// control is the way of the control connections.
func (c *Config) control() *Way { return &c.Ways[len(c.Ways)-1] }

// terms are what this rank and its peers must agree on where they meet by a way.
func (c *Config) terms(w *Way) *wire.Terms {
	return &wire.Terms{Run: c.Run, Identity: c.Identity, Token: c.Token, TLS: w.TLS, Self: c.Rank, World: c.Size, Called: "rank"}
}
