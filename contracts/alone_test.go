package contracts

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// TestOneRankIsJudgedBesideItself: each number that a run of one rank recorded is held
// against the same run made here, whoever has no control for it, and the report names
// the contract.
func TestOneRankIsJudgedBesideItself(t *testing.T) {
	cfg := on(t, "nano", "dp=1", false)
	cfg.Model.SeqLen, cfg.Model.Layers, cfg.Steps = 3, 1, 2
	cfg.Recording = spec.Recording{Digests: true, Workers: true}
	cfg.Seed = 77 // of no golden run
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
	if err != nil {
		t.Fatal(err)
	}
	again := func(h *trace.History) contract.Verdict {
		dir := t.TempDir()
		if err := h.Save(dir); err != nil {
			t.Fatal(err)
		}
		for _, c := range judged(t, All(), dir).Contracts {
			if c.ID != "C-DET-001" {
				continue
			}
			if len(c.Clauses) != 1 || c.Clauses[0].ID != "C-DET-001.1" {
				t.Errorf("clauses %v: the others have no evidence", c.Clauses)
			}
			return c.Clauses[0].Verdict
		}
		t.Error("no word of C-DET-001")
		return contract.Inconclusive
	}
	if v := again(out.History); v != contract.Held {
		t.Errorf("the run as it is: %s", v)
	}
	seen := map[string]bool{}
	for i, e := range out.History.Ranks[0] {
		if k := string(e.Kind) + " " + e.What; (e.Kind == trace.KindDigest || e.Kind == trace.KindScalar || e.Kind == trace.KindChanged) && !seen[k] {
			seen[k] = true
			h := *out.History
			all := append([]trace.Event(nil), h.Ranks[0]...)
			if e.Digest != nil {
				d := *e.Digest
				d.B ^= 1 << 40
				all[i].Digest = &d
			} else {
				all[i].Value *= 1 + 1.0/(1<<20)
			}
			h.Ranks = map[int][]trace.Event{0: all}
			if v := again(&h); v != contract.Violated {
				t.Errorf("%s is another: %s", k, v)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d kinds of numbers: %v", len(seen), seen)
	}
}

// TestWhatARunDidNotRecordIsLeftOut: a run without elements gives the formulas nothing
// to judge. All other contracts' verdict stands; asked for the formulas alone, there
// is none, for that reason.
func TestWhatARunDidNotRecordIsLeftOut(t *testing.T) {
	cfg := on(t, "nano", "dp=1", false)
	cfg.Steps, cfg.Recording = 1, spec.Recording{Digests: true, Workers: true}
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := out.History.Save(dir); err != nil {
		t.Fatal(err)
	}
	const why = "the run recorded no elements"
	r := judged(t, All(), dir)
	for _, c := range r.Contracts {
		if c.ID == "C-MODEL-001" {
			t.Errorf("C-MODEL-001 is %s", c.Verdict)
		}
	}
	if r.Verdict != contract.Held || !has(r.Notes, why) {
		t.Errorf("%s; notes %q", r.Verdict, r.Notes)
	}
	c, err := Find("C-MODEL-001")
	if err != nil {
		t.Fatal(err)
	}
	r = judged(t, []*suite.Suite{c}, dir)
	if r.Verdict != contract.Inconclusive || !has(r.Contracts[0].Clauses[0].Doubts, why) {
		t.Errorf("alone: %s: %q", r.Verdict, r.Contracts[0].Clauses[0].Doubts)
	}
}

// TestConfigurationsWithoutGroupsAreNamed: a contract that has no case for a
// configuration says why.
func TestConfigurationsWithoutGroupsAreNamed(t *testing.T) {
	c, err := Find("C-NORM-001")
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	cfg, err := o.Base("nano")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model.Groups.Data, cfg.Model.Groups.Tensor = 1, 1
	o.Config, o.Own = "alone", &cfg
	if s := o.selects(c); !strings.Contains(s.whole, "none of its plans promises the bits of one worker on alone, which has 1 groups of data and 1 of tensors") {
		t.Errorf("%q", s.whole)
	}
}
