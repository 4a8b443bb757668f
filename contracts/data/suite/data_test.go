package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	data "github.com/lockstep-ml/lockstep/contracts/data/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	corpus "github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// The cases hold, mutants are caught, and what is taken away from the evidence
// of a case leaves clauses without a verdict.
func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := data.Suite()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	on, ok := c.Find(contracttest.Options(), "odd dp=2,tp=2,microbatches=6 bytes padded")
	if !ok {
		t.Fatal("no such case")
	}
	e, err := r.Evidence(t, on)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name    string
		lost    func(trace.Event) bool
		clauses []string
	}{
		{"data of a rank in a step", func(e trace.Event) bool { return e.Kind == trace.KindData && e.Rank == 3 && e.Step == 4 }, []string{"1", "2", "3", "4"}},
		{"a micro-batch", func(e trace.Event) bool { return e.Kind == trace.KindData && e.Micro == 5 }, []string{"1", "2", "3", "4"}},
		{"tokens", func(e trace.Event) bool { return e.Kind == trace.KindTokens && e.Rank == 1 }, []string{"4"}},
	} {
		t.Run("without "+x.name, func(t *testing.T) {
			contracttest.Want(t, c, contracttest.Without(e, contract.Test, x.lost), contract.Inconclusive, x.clauses...)
		})
	}
	t.Run("without digests", func(t *testing.T) {
		less := edit(e, func(d *trace.Event) { d.Digest = nil })
		contracttest.Want(t, c, less, contract.Inconclusive, "3")
		contracttest.Want(t, c, less, contract.Held, "1", "2", "4")
	})
	t.Run("without a text", func(t *testing.T) {
		none, other := e, e
		none.Texts = nil
		other.Texts = func(string) ([]byte, error) { return []byte("another text"), nil }
		other.Fresh = false
		for _, x := range []contract.Evidence{none, other} {
			contracttest.Want(t, c, x, contract.Inconclusive, "1", "2", "3", "4")
		}
		other.Fresh = true
		contracttest.Want(t, c, other, contract.Inconclusive, "1", "2", "4")
		contracttest.Want(t, c, other, contract.Violated, "3")
	})
	for _, x := range []struct {
		name, clause string
		change       func(*trace.Event)
	}{
		{"another id", "1", func(d *trace.Event) { d.IDs = append([]int64{d.IDs[0] + 1}, d.IDs[1:]...) }},
		{"a sequence moved to the next worker", "2", func(d *trace.Event) { d.Worker ^= 1 }},
		{"a sequence less", "2", func(d *trace.Event) { d.IDs = d.IDs[1:] }},
		{"another number of the micro-batch", "2", func(d *trace.Event) { d.Micro = 6 }},
		{"the same micro-batch twice", "2", func(d *trace.Event) { d.Micro-- }},
		{"another digest", "3", func(d *trace.Event) { d.Digest = &kernels.Digest{A: d.Digest.A, B: d.Digest.B + 1} }},
		{"another count", "4", func(d *trace.Event) { d.Count-- }},
	} {
		t.Run(x.name, func(t *testing.T) {
			changed := edit(e, func(d *trace.Event) {
				if d.Rank == 2 && d.Step == 1 && d.Micro == 4 {
					x.change(d)
				}
			})
			contracttest.Want(t, c, changed, contract.Violated, x.clause)
		})
	}
	r.Mutants(t, c)
}

// edit changes the data events of a copy.
func edit(e contract.Evidence, change func(*trace.Event)) contract.Evidence {
	return contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			if events[i].Kind == trace.KindData {
				change(&events[i])
			}
		}
		return events
	})
}

// The default cases on the text of all bytes run over the end of an epoch, with
// sequences left over, under either policy and on both fixtures; one of the
// fixtures has a sequence that is to be ignored.
func TestCasesShow(t *testing.T) {
	over, blank := map[string]int{}, 0
	for _, cs := range data.Suite().Cases(contracttest.Options()) {
		cfg := *cs.Runs[contract.Test].Config
		if cfg.Text != corpus.BytesName {
			continue
		}
		set, err := cfg.Set(corpus.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Steps <= set.Steps() || set.Len()%cfg.Sequences == 0 {
			t.Errorf("%s: %d steps, %d sequences of which %d are left over, in an epoch of %d steps", cs.Name, cfg.Steps, set.Len(), set.Len()%cfg.Sequences, set.Steps())
		}
		over[cfg.Model.Name+" "+string(cfg.LastStep)]++
		blank += len(cfg.Blank)
	}
	for _, want := range []string{"nano drop", "nano pad", "odd drop", "odd pad"} {
		if over[want] == 0 {
			t.Errorf("no case of %s; there are %v", want, over)
		}
	}
	if blank == 0 {
		t.Error("no case has a sequence that is to be ignored")
	}
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*suite.Suite{data.Suite()}); err != nil {
		t.Error(err)
	}
}
