package suite

import (
	"cmp"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// work is how many parameters times tokens the step has that is judged: 6e8 take a
// processor about a second.
func work(level int) int64 {
	return map[int]int64{1: 5e8, 2: 6e9, 3: 6e10}[max(level, 1)]
}

const (
	// maxElements bounds parameters times steps: four of each parameter's are kept in
	// memory.
	maxElements = 1 << 26
	// fewest are the steps of a run of any model.
	fewest = 2
	// least is the shortest sequence that a large model is judged on, of few.
	least, few = 8, 3
	// unknown is the memory of a machine of which nothing is known.
	unknown = 16 << 30
)

// fit shortens sequences, the batch and the run of a large model: all formulas stay,
// there are fewer positions and rows. Of one whose elements there is no memory for it
// leaves as many blocks as there is, which less says; lacks says that there is none for
// a single one.
func fit(c *spec.Config, o suite.Options) (less, lacks string) {
	whole, there := c.Model, cmp.Or(o.Memory, unknown)
	for c.Model.Layers > 1 && needs(c) > there {
		c.Model.Layers--
	}
	all := *c
	all.Model = whole
	switch {
	case needs(c) > there:
		lacks = fmt.Sprintf("a run of one of %s's %d blocks, all of whose elements are kept, needs %s of memory, and %s may be used",
			whole.Name, whole.Layers, gib(needs(c)), gib(there))
	case c.Model.Layers < whole.Layers:
		less = fmt.Sprintf("%d of %d blocks, as wide as they are: a run whose elements are all kept needs %s of memory for all blocks, %s for these, and %s may be used",
			c.Model.Layers, whole.Layers, gib(needs(&all)), gib(needs(c)), gib(there))
	}
	rows := work(o.Level) / c.Model.Params()
	if rows < int64(c.Sequences)*least && c.Sequences > few {
		c.Sequences, c.Blank = few, nil
	}
	c.Model.SeqLen = min(c.Model.SeqLen, max(least, int(rows)/c.Sequences))
	record(c)
	return less, lacks
}

// gib is a number of bytes for reading.
func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// needs is how many bytes a run of the fewest steps and its judging take at a time.
// Kept are, of every element, weights and moments before each step and after the last,
// and the gradient of each. Beside them stand what trains, which is garbage when
// gradients are evaluated: value and bound of every element, and, of the largest
// parameter, those of its update and the factors of its product.
func needs(c *spec.Config) int64 {
	const single, double = 4, 8
	moments := int64(2)
	if c.Optimizer.Name == "sgd" {
		moments = 1
	}
	n := c.Model.Params()
	kept := single * n * ((fewest+1)*(1+moments) + fewest)
	trains := single * n * (3 + moments) // weights, twice, the gradient, and moments
	return kept + max(trains, double*(2*n+14*largest(c.Model)))
}

// largest is how many elements the largest parameter has.
func largest(m model.Config) int64 {
	return int64(m.Hidden) * int64(max(m.Vocab, m.Intermediate, m.QDim()))
}

// record records all elements of a run, of as many steps as there is memory for.
func record(c *spec.Config) {
	c.Recording = spec.Recording{Digests: true, Capture: true}
	c.Steps = max(fewest, min(c.Steps, int(maxElements/c.Model.Params())))
}
