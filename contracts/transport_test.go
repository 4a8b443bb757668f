package contracts

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// TestTransport: every contract holds over every transport as it does in one memory, in
// all of its cases, and the one that needs one memory is left out by name.
func TestTransport(t *testing.T) {
	worlds := map[string]comm.World{"tcp": tcp.Local, "shm": shm.Local}
	transports := []string{"tcp", "shm"}
	if runtime.GOOS != "linux" {
		transports = transports[:1]
	}
	var left []string
	for _, c := range All() {
		if c.OneProcess {
			left = append(left, c.ID)
		}
	}
	if want := []string{"C-ORDER-001"}; !slices.Equal(left, want) {
		t.Errorf("left out are %q, want %q", left, want)
	}
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			held := 0
			for _, c := range All() {
				if race.Enabled && c.ID != "C-TP-001" && !c.OneProcess { // the others take their time there, with the same code
					continue
				}
				t.Run(c.ID, func(t *testing.T) {
					if c.OneProcess {
						leftOut(t, c, name)
						return
					}
					over(t, c, name, worlds[name])
					held++
				})
			}
			t.Logf("%d contracts were judged over %s; left out of %d: %s", held, name, len(All()), strings.Join(left, ", "))
		})
	}
}

// over judges a contract whose ranks reach each other by a transport.
func over(t *testing.T, c *suite.Suite, transport string, world comm.World) {
	var worlds, ranks atomic.Int64
	o := full()
	o.Transport, o.Parts.Deadline = transport, time.Minute
	o.Parts.World = func(ctx context.Context, size int, be func(int) kernels.Backend, options comm.Options) ([]comm.Communicator, error) {
		worlds.Add(1)
		ranks.Store(max(ranks.Load(), int64(size)))
		return world(ctx, size, be, options)
	}
	r, err := Verify(t.Context(), []*suite.Suite{c}, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != contract.Held || len(r.Contracts) != 1 || len(r.LeftOut) > 0 {
		t.Errorf("%d contracts are %s, left out are %q", len(r.Contracts), r.Verdict, r.LeftOut)
	}
	saw := 0
	for _, cl := range r.Contracts[0].Clauses {
		if cl.Verdict != contract.Held {
			t.Errorf("%s is %s: %+v %q", cl.ID, cl.Verdict, cl.Findings, cl.Doubts)
		}
		saw += cl.Saw
	}
	if alone := slices.Contains([]string{"C-MODEL-001", "C-KERN-001"}, c.ID); alone != (ranks.Load() < 2) { // about one rank
		t.Errorf("%d worlds, of %d ranks at the most", worlds.Load(), ranks.Load())
	}
	t.Logf("%d clauses hold in %d cases on %d pieces of evidence, from %d worlds of up to %d ranks",
		len(r.Contracts[0].Clauses), len(o.Cases(c)), saw, worlds.Load(), ranks.Load())
}

// leftOut wants a contract to be refused where it alone is asked for, and to be named
// where all are.
func leftOut(t *testing.T, c *suite.Suite, transport string) {
	o := full()
	o.Transport = transport
	says := fmt.Sprintf("%s: its ranks take turns in the memory of one process, which transport=%s has not", c.ID, transport)
	_, err := Verify(t.Context(), []*suite.Suite{c}, o)
	if wrong := (*OptionError)(nil); !errors.As(err, &wrong) || err.Error() != says {
		t.Errorf("alone: %v, want %s", err, says)
	}
	if _, notes, _ := o.concerned(All()); !slices.Contains(notes, says) {
		t.Errorf("with all: %q, want %s", notes, says)
	}
	t.Log(says)
}
