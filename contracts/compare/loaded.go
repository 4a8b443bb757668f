package compare

import (
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Loaded is the state that a run goes on from.
type Loaded struct {
	First, Taken int // the next step, and the optimizer steps taken
	State        []Tensor
}

// Tensor is a whole tensor of a state: its kind (trace.Weight, ...), name, and
// elements by rows of Cols each.
type Tensor struct {
	What, Name string
	Cols       int
	Elements   []float32
}

// LoadedBy is the state that a recorded run went on from, nil where that began with
// its seed. It refuses a run that did not record the elements.
func LoadedBy(h *trace.History) (*Loaded, error) {
	if first, _ := evidence.Resumed(h); first == 0 {
		return nil, nil
	}
	r, err := evidence.New(h)
	if err != nil {
		return nil, err
	}
	if torn := r.Torn(); torn != "" {
		return nil, errors.New(torn)
	}
	out := &Loaded{First: r.First, Taken: r.Taken}
	if out.State, err = state(r, r.First-1); err != nil {
		return nil, fmt.Errorf("the run goes on at step %d, and not all elements of the state it goes on from are recorded (%w): record it with evidence.start", r.First, err)
	}
	return out, nil
}

// LeftBy is the state that a recorded run of one rank ended with. It refuses a run that
// did not record the elements.
func LeftBy(h *trace.History) (*Loaded, error) {
	r, err := evidence.New(h)
	if err != nil {
		return nil, err
	}
	taken, _ := r.Scalar(0, r.Steps-1, trace.Counter)
	out := &Loaded{First: r.Steps, Taken: int(taken.Value)}
	if out.State, err = state(r, r.Steps-1); err != nil {
		return nil, fmt.Errorf("not all elements of the state after step %d are recorded (%w)", r.Steps-1, err)
	}
	return out, nil
}

// state is the recorded state after a step. Its error names what lacks.
func state(r *evidence.Run, step int) (out []Tensor, err error) {
	held := r.Held()
	for _, what := range r.State() {
		for _, t := range r.Params {
			x, ok := r.Elements(held[t.Name], step, what)
			if !ok {
				return nil, fmt.Errorf("%s of %s", what, t.Name)
			}
			out = append(out, Tensor{what, t.Name, held[t.Name][0].Param.Cols, x})
		}
	}
	return out, nil
}
