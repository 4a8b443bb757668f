//go:build cuda

package cuda

import (
	"slices"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// partKernel is no kernel of a model: no tally counts it.
const partKernel = "part"

// Parts implements kernels.Located.
func (b *Backend) Parts() int { return b.dev.Multiprocessors }

// EachPart implements kernels.Located.
func (b *Backend) EachPart(seed uint32) ([]kernels.Part, error) {
	b.enter()
	defer b.mu.Unlock()
	c := b.begin(partKernel)
	side, err := c.r.kernel.Occupancy(c.r.threads, 0)
	if err != nil {
		return nil, err
	}
	words := make([]uint32, 2*side*b.Parts())
	mem := b.work(len(words))
	if mem == nil {
		return nil, b.fault
	}
	b.note(b.stream.Fill(mem, 0, 0xff, elementBytes*len(words))) // nothing is left of an earlier call
	c.p.U64(mem.Address()).U32(seed)
	c.launch(len(words)/2, 1, c.r.threads)
	b.waits++
	b.note(b.stream.Download(gpu.AsBytes(words), mem, 0))
	var parts []kernels.Part
	for w := range slices.Chunk(words, 2) {
		parts = append(parts, kernels.Part{ID: w[0], Sum: w[1]})
	}
	return parts, b.fault
}
