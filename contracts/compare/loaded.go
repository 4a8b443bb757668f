package compare

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Loaded is the state that a run went on from.
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
	out, held := &Loaded{First: r.First, Taken: r.Taken}, r.Held()
	for _, what := range r.State() {
		for _, t := range r.Params {
			x, ok := r.Elements(held[t.Name], r.First-1, what)
			if !ok {
				return nil, fmt.Errorf("the run goes on at step %d, and not all elements of the state it goes on from are recorded (%s of %s): record it with evidence.start", r.First, what, t.Name)
			}
			out.State = append(out.State, Tensor{what, t.Name, held[t.Name][0].Param.Cols, x})
		}
	}
	return out, nil
}
