package contracts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// A contract that lacks the memory for a case is refused where it is asked for by name,
// and noted beside others: it is never among what is held. What it does a part of is
// judged, with a note.
func TestWhatThereIsNoMemoryForIsNamed(t *testing.T) {
	o := options()
	o.Config, o.Memory = "llama2-7b", 2<<30
	model, err := Find("C-MODEL-001")
	if err != nil {
		t.Fatal(err)
	}
	var refused *OptionError
	if _, err := Verify(t.Context(), []*suite.Suite{model}, o); !errors.As(err, &refused) || !strings.Contains(err.Error(), "needs ") || !strings.Contains(err.Error(), "2.0 GiB may be used") {
		t.Errorf("alone: %v", err)
	}
	_, _, left := o.concerned([]*suite.Suite{model, (&toy{}).contract()})
	if len(left) != 1 || !strings.HasPrefix(left[0], "C-MODEL-001: not judged: its case llama2-7b: ") {
		t.Errorf("beside another: %q is left out", left)
	}

	c := (&toy{}).contract()
	inner := c.Cases
	c.Cases = func(o suite.Options) []suite.Case {
		out := inner(o)
		out[0].Less = "half of it"
		return out
	}
	r, err := Verify(t.Context(), []*suite.Suite{c}, options())
	if err != nil || r.Verdict != contract.Held || !slices.ContainsFunc(r.Notes, func(s string) bool { return strings.HasSuffix(s, "its case toy a: half of it") }) {
		t.Errorf("%v, %+v", err, r)
	}
}
