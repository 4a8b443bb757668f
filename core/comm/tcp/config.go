//go:build unix

package tcp

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// Config is how a rank joins a world.
type Config struct {
	Rank, Size int
	// Coordinator is where rank 0 listens, host and port.
	Coordinator string
	// Listen is where this rank listens; "" is a free port of the loopback interface,
	// and of rank 0 Coordinator.
	Listen string
	// Listener is where this rank listens, where it is open already; Listen does not
	// count then.
	Listener net.Listener
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
		return fmt.Errorf("tcp: world of %d ranks: want at least 1", c.Size)
	case c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("tcp: rank %d: must lie in [0,%d)", c.Rank, c.Size)
	case c.Rendezvous < 0 || c.Silence < 0:
		return fmt.Errorf("tcp: rendezvous %v, silence %v: must not be negative", c.Rendezvous, c.Silence)
	case o.Turns != nil:
		return fmt.Errorf("tcp: a schedule of ranks needs all of them in one process, without connections")
	}
	c.Rendezvous = cmp.Or(c.Rendezvous, DefaultRendezvous)
	c.Silence = cmp.Or(c.Silence, DefaultSilence)
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
		if c.Rank == 0 && c.Coordinator != "" {
			c.Listen = c.Coordinator
		}
	}
	return nil
}

// terms are what this rank and its peers must agree on.
func (c *Config) terms() *wire.Terms {
	return &wire.Terms{Run: c.Run, Identity: c.Identity, Token: c.Token, Self: c.Rank, World: c.Size, Called: "rank"}
}
