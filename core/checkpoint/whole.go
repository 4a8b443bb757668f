package checkpoint

import (
	"cmp"
	"slices"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Tensor is a whole tensor of the state: its kind (weight, m, v, momentum), name, and
// elements by rows of Cols each.
type Tensor struct {
	What, Name string
	Cols       int
	Elements   []float32
}

// Whole stores a state of which all elements are at hand as a checkpoint of one file
// below root. The manifest's digests and files are Whole's to fill in.
func Whole(root string, m Manifest, state []Tensor) error {
	state = slices.Clone(state)
	slices.SortFunc(state, func(a, b Tensor) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Name, b.Name)) })
	m.Digests = map[string]kernels.Digest{}
	rects := make([]Rect, len(state))
	for i, t := range state {
		rects[i] = Rect{What: t.What, Tensor: t.Name, R: shard.Range{Hi: len(t.Elements) / t.Cols}, C: shard.Range{Hi: t.Cols}}
		d := m.Digests[t.What]
		d.Add(digest(t))
		m.Digests[t.What] = d
	}
	if err := Clear(root, m.Step); err != nil {
		return err
	}
	f, err := Save(Pending(root, m.Step), 0, rects, Metadata(m.Step, m.Counter), func(i int) ([]float32, error) { return state[i].Elements, nil })
	if err != nil {
		return err
	}
	m.Files = []File{f}
	return Complete(root, m)
}

func digest(t Tensor) (d kernels.Digest) {
	id := kernels.TensorID(t.Name)
	for i, x := range t.Elements {
		a, b := kernels.Mix(id, uint64(i), uint64(kernels.Bits(x)))
		one := kernels.Digest{A: a, B: b}
		if x-x != 0 {
			one.NonFinite = 1
		}
		d.Add(one)
	}
	return d
}
