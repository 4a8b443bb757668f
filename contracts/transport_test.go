package contracts

import (
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/internal/race"
)

// TestTransport: contracts hold over TCP as they do in one memory, and the one that
// needs one memory is left out by name.
func TestTransport(t *testing.T) {
	ids := []string{"C-ZERO-001", "C-TP-001", "C-PIPE-001", "C-ORDER-001"}
	if race.Enabled {
		ids = ids[1:2]
	}
	var cs []*suite.Suite
	for _, id := range ids {
		c, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	o := full()
	o.Transport, o.Parts.World, o.Parts.Deadline = "tcp", tcp.Local, 5*time.Minute
	r, err := Verify(t.Context(), cs, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contracts {
		if c.Verdict != contract.Held {
			t.Errorf("%s is %s", c.ID, c.Verdict)
		}
	}
	if len(r.Contracts) != min(3, len(cs)) || len(cs) > 1 && !has(r.LeftOut, "C-ORDER-001: its ranks take turns") {
		t.Errorf("%d contracts, left out are %q", len(r.Contracts), r.LeftOut)
	}
}
