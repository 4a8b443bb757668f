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
	if r.Verdict != contract.Held || len(r.Contracts) != min(3, len(cs)) {
		t.Errorf("%s of %d contracts", r.Verdict, len(r.Contracts))
	}
	if len(cs) > 1 && !has(r.Notes, "C-ORDER-001: its ranks take turns") {
		t.Errorf("notes %q", r.Notes)
	}
}
