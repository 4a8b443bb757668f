package suite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// card is plain Go that says it is on a device.
type card struct {
	*ref.Backend[float32]
	index int
	spare uint64
	asked int
	seeds map[uint32]bool
}

func (c *card) On() kernels.Device {
	return kernels.Device{Index: c.index, Name: "Card", UUID: fmt.Sprintf("GPU-%d", c.index), PCI: fmt.Sprintf("0000:%02d:00.0", c.index)}
}
func (c *card) Spare() (uint64, error) { return c.spare, nil }
func (c *card) Parts() int             { return 2 }

// EachPart has one part a time compute, of numbers that are not 0 and 1.
func (c *card) EachPart(seed uint32) ([]kernels.Part, error) {
	c.asked++
	c.seeds[seed] = true
	return []kernels.Part{{ID: []uint32{1, 7}[c.asked/2%2], Sum: ref.PartSum(seed)}}, nil
}

// surveyed makes the case of devices at a level on so many cards, with faults.
func surveyed(t *testing.T, level, n int, f ...fault.Fault) contract.Evidence {
	t.Helper()
	parts := launch.Parts{Backend: func(rank int) (kernels.Backend, error) {
		return &card{ref.New[float32](), rank, 8 << 20, 0, map[uint32]bool{}}, nil
	}}
	one := devices(suite.Options{Level: level, Devices: n})
	if len(f) > 0 {
		fault.Into(contract.Test, fault.All(f...))(&one)
	}
	run := one.Runs[contract.Test]
	if run.Parts != nil {
		run.Parts(&parts)
	}
	h, err := run.Do(t.Context(), suite.Env{Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	tracetest.Admitted(t, h)
	return contract.Evidence{Case: one.Name, Clauses: one.Clauses, Histories: map[contract.Role]*trace.History{contract.Test: h}}
}

// stuck has one bit of memory always be the same, whatever is written.
func stuck(rank int, v uint32) fault.Fault {
	return onRank(rank, func() faulty {
		var at kernels.Tensor
		n := 0
		return faulty{copy: func(be kernels.Backend, dst, src kernels.Tensor) {
			be.Copy(dst, src)
			if n++; n == 5 {
				at = dst
			}
			if dst == at {
				change(be, dst.Range(7, 8), func(x float32) float32 { return math.Float32frombits(math.Float32bits(x)&^1 | v) })
			}
		}}
	})
}

// from loses the last elements of what a rank sends, wherever that arrives.
func from(rank int) fault.Fault {
	backends := &fault.PerRank[kernels.Backend]{}
	return fault.All(func(p *launch.Parts) {
		before := p.Backend
		p.Backend = func(r int) (kernels.Backend, error) {
			be, err := before(r)
			*backends.At(r) = be
			return be, err
		}
	}, fault.OnComm(func(r int, _ names.Axis, c comm.Communicator) comm.Communicator {
		return sentBy{short{c, *backends.At(r)}, rank}
	}))
}

type sentBy struct {
	short
	rank int
}

func (s sentBy) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	if s.Ranks()[from] == s.rank {
		return s.short.Recv(ctx, x, from)
	}
	return s.Communicator.Recv(ctx, x, from)
}

func (s sentBy) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return s.Communicator.AllReduce(ctx, x, op)
}

// TestDevices: right devices are held at every level, and of one that is wrong the finding
// is about that one, with its host and its identity.
func TestDevices(t *testing.T) {
	c := Suite()
	for level := 1; level <= 3; level++ {
		for n := 1; n <= 5-level; n++ {
			e := surveyed(t, level, n)
			contracttest.Want(t, c, e, contract.Held, "9", "10")
			if got, want := contracttest.Verdicts(c, e)["9"].Expected, n*(1+2*(n-1)); got != want {
				t.Errorf("level %d, %d devices: %d pieces of evidence, want %d", level, n, got, want)
			}
		}
	}
	for name, x := range map[string]struct {
		devices, level int
		fault          fault.Fault
		clause, says   string
	}{
		"one part":                {3, 2, onePart(1), "10", "of the 9 equal ones of a product, for 2 parts of the device"},
		"one multiprocessor":      {3, 1, lame(1), "10", "1 of the 2 multiprocessors that computed give a wrong sum, by number: [1]"},
		"one bit of memory":       {3, 1, oneBit(1), "10", "does not keep"},
		"a bit that is always 0":  {2, 1, stuck(1, 0), "10", "does not keep"},
		"a bit that is always 1":  {2, 1, stuck(1, 1), "10", "does not keep"},
		"one line of addresses":   {3, 1, oneLine(1), "10", "does not keep"},
		"what it receives":        {3, 1, lastBytes(1), "9", "rank 1 is wrong with 2 of the 2 others"},
		"what it receives of two": {2, 1, lastBytes(1), "9", "what rank 1 on device 1 (Card, GPU-1, 0000:01:00.0) of host"},
		"what it sends":           {3, 2, from(1), "9", "rank 1 is wrong with 2 of the 2 others"},
	} {
		t.Run(name, func(t *testing.T) {
			e := surveyed(t, x.level, x.devices, x.fault)
			r := contracttest.Verdicts(c, e)[x.clause]
			if r.Verdict() != contract.Violated {
				t.Fatalf("%s %v", r.Verdict(), r.Doubts)
			}
			said := false
			for _, f := range r.Findings {
				if f.Rank != 1 || f.Device != "device 1 (Card, GPU-1, 0000:01:00.0)" || f.Host == "" {
					t.Errorf("it names rank %d, %q of %q: %s", f.Rank, f.Device, f.Host, f.Message)
				}
				said = said || strings.Contains(f.Message, x.says)
			}
			if !said {
				t.Errorf("no finding says %q: %+v", x.says, r.Findings)
			}
			for other, r := range contracttest.Verdicts(c, e) {
				if other != x.clause && len(r.Findings) > 0 {
					t.Errorf("clause %s: %+v", other, r.Findings)
				}
			}
		})
	}
}

// TestDevicesAreAllEvidence: what a device, or two, have not done is no pass, nor memory
// that there was no time or room for.
func TestDevicesAreAllEvidence(t *testing.T) {
	c, e := Suite(), surveyed(t, 1, 3)
	for _, what := range []string{trace.Parts, trace.Each, trace.Kept, trace.Copied, trace.Summed, trace.All} {
		clause := "9"
		if what == trace.Parts || what == trace.Each || what == trace.Kept {
			clause = "10"
		}
		dropped := false
		less := contracttest.Without(e, contract.Test, func(e trace.Event) bool {
			drop := e.What == what && e.Rank == 2 && !dropped
			dropped = dropped || drop
			return drop
		})
		contracttest.Want(t, c, less, contract.Inconclusive, clause)
	}
	for _, what := range []string{trace.Parts, trace.Kept, trace.Copied, trace.Summed, trace.All} {
		clause := map[bool]string{true: "10", false: "9"}[what == trace.Parts || what == trace.Kept]
		none := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
			events = slices.Clone(events)
			for i := range events {
				if events[i].What == what {
					events[i].Count = 0
				}
			}
			return events
		})
		contracttest.Want(t, c, none, contract.Inconclusive, clause)
	}
	for _, what := range []string{trace.Kept, trace.Each} {
		part := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
			events = slices.Clone(events)
			for i := range events {
				if events[i].What == what {
					events[i].Count--
				}
			}
			return events
		})
		contracttest.Want(t, c, part, contract.Inconclusive, "10")
		if doubts := strings.Join(contracttest.Verdicts(c, part)["10"].Doubts, "\n"); !strings.Contains(doubts, "rank 2 on device 2 (Card, GPU-2, 0000:02:00.0) of host") {
			t.Errorf("%s: %s", what, doubts)
		}
	}
	delete(e.Histories[contract.Test].Ranks, 1)
	contracttest.Want(t, c, e, contract.Inconclusive, "9", "10")
}

// TestMemoryIsAShare: at level 3 it is nine tenths of what nobody uses.
func TestMemoryIsAShare(t *testing.T) {
	for _, events := range surveyed(t, 3, 2).Histories[contract.Test].Ranks {
		for _, e := range events {
			if least := int64(8<<20) * 8 / 10; e.What == trace.Kept && (e.Bytes < least || 4*e.Count < least || e.Bytes > 8<<20) {
				t.Errorf("%d of %d bytes", 4*e.Count, e.Bytes)
			}
		}
	}
}

// TestPartners: over all rounds each rank is once with each other one, which says the same.
func TestPartners(t *testing.T) {
	for n := range 12 {
		met := map[[2]int]int{}
		for round := range rounds(n) {
			for rank := range n {
				with := partner(round, rank, n)
				if with >= 0 && (with == rank || with >= n || partner(round, with, n) != rank) {
					t.Errorf("round %d of %d: rank %d is with %d, who is not", round, n, rank, with)
				}
				if with >= 0 {
					met[[2]int{rank, with}]++
				}
			}
		}
		for pair, times := range met {
			if times != 1 {
				t.Errorf("%d: ranks %v met %d times", n, pair, times)
			}
		}
		if len(met) != n*(n-1) && n > 0 {
			t.Errorf("%d: %d pairs met", n, len(met))
		}
	}
}

// TestPattern: no element is NaN, whose bits a hash does not tell apart, inverted or not.
func TestPattern(t *testing.T) {
	for _, invert := range []uint32{0, 1<<32 - 1} {
		for i, x := range pattern(1, 1<<16, invert) {
			if x != x {
				t.Fatalf("element %d is NaN", i)
			}
		}
	}
}

// TestRepeats: each part of a device computes as often as the level says, another sum each
// time, and until none is left out.
func TestRepeats(t *testing.T) {
	for repeats, want := range map[int]int{1: 2, 2: 2, 8: 8} { // a card's second part does in the second call
		c := &card{ref.New[float32](), 0, 0, 0, map[uint32]bool{}}
		e, err := surveying{kern.DeviceSpec{Seed: 5, Repeats: repeats}, 1}.each(c)
		if err != nil || e.Count != 2 || e.Unit != "2" || e.Text != "" || c.asked != want || len(c.seeds) != want {
			t.Errorf("%d repeats: asked %d times, with %d seeds, want %d: %+v %v", repeats, c.asked, len(c.seeds), want, e, err)
		}
	}
	half := &halfCard{card: &card{ref.New[float32](), 0, 0, 0, map[uint32]bool{}}}
	if e, err := (surveying{kern.DeviceSpec{Seed: 5, Repeats: 1}, 1}).each(half); err != nil || e.Count != 1 || half.asked != patience {
		t.Errorf("a part on which nothing runs: asked %d times, want %d: %+v %v", half.asked, patience, e, err)
	}
}

// halfCard gives no block to its second part.
type halfCard struct{ *card }

func (c *halfCard) EachPart(seed uint32) ([]kernels.Part, error) {
	c.asked++
	return []kernels.Part{{ID: 1, Sum: ref.PartSum(seed)}}, nil
}
