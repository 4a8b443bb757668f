//go:build cuda

package cuda

import (
	"embed"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

//go:embed ptx/*.ptx
var shipped embed.FS

// routine is a kernel on the device.
type routine struct {
	kernel  *gpu.Kernel
	threads int // to a block, at most
	calls   uint64
}

// load compiles all PTX and finds the kernels in it: those that the backend launches, no
// more and no fewer.
func (b *Backend) load(ptx fs.FS) error {
	files, err := fs.Glob(ptx, "*.ptx")
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := fs.ReadFile(ptx, name)
		if err == nil {
			err = b.loadText(string(text))
		}
		if err != nil {
			return fmt.Errorf("kernels of %s: %w", name, err)
		}
	}
	for _, name := range launched() {
		if b.routines[name] == nil {
			return fmt.Errorf("kernels of %d files of PTX: %s, which is launched, is in none", len(files), name)
		}
	}
	return nil
}

// loadText compiles the PTX of one file and finds its kernels.
func (b *Backend) loadText(text string) error {
	m, err := b.dev.Load(text)
	if err != nil {
		return err
	}
	b.modules = append(b.modules, m)
	for _, name := range m.Kernels() {
		k, err := m.Kernel(name)
		switch {
		case err != nil:
			return err
		case !slices.Contains(launched(), name):
			return fmt.Errorf("%s: is none that is launched", name)
		case b.routines[name] != nil:
			return fmt.Errorf("%s: is in another file too", name)
		case k.Threads() == 0:
			return fmt.Errorf("%s: has no .maxntid, which says how many threads a block of it has", name)
		}
		b.routines[name] = &routine{kernel: k, threads: k.Threads()}
		if name != partKernel {
			b.names = append(b.names, name)
		}
	}
	return nil
}

// launched are the kernels that the backend launches.
func launched() []string {
	return []string{
		"adamw", "add_bias", "add_vectors", "attention_dp", "attention_ds", "attention_keys_16x16", "attention_keys_32x32",
		"attention_scores", "attention_softmax", "attention_values", "column_sum", "copy", "cross_entropy_grad", "cross_entropy_nll",
		"embedding", "embedding_grad", "fill", "hash", "hash_changed", "logits_exp_sum", "logits_max", partKernel,
		"product_nn_128x128", "product_nn_128x64", "product_nn_16x16", "product_nn_32x32",
		"product_nt_128x128", "product_nt_128x64", "product_nt_16x16", "product_nt_32x32",
		"product_tn_128x128", "product_tn_128x64", "product_tn_32x32",
		"reduce_max", "reduce_sum", "residual", "rmsnorm", "rmsnorm_grad_dw", "rmsnorm_grad_dx", "rope", "scale", "sgd",
		"sum_squares", "swiglu", "swiglu_grad",
	}
}

// Tally implements kernels.Tallier: one routine for each kernel of the device.
func (b *Backend) Tally() []kernels.Routine {
	b.enter()
	defer b.mu.Unlock()
	out := make([]kernels.Routine, 0, len(b.names))
	for _, name := range b.names {
		out = append(out, kernels.Routine{Name: name, Calls: b.routines[name].calls})
	}
	return out
}

// call is a launch whose parameters are being added, in the order of the kernel's. It
// holds the backend until it is launched.
type call struct {
	b *Backend
	r *routine
	p *gpu.Params
}

// begin starts a launch of a kernel, one of launched; the backend is locked.
func (b *Backend) begin(name string) call {
	r := b.routines[name]
	if r == nil {
		panic("kernels: " + name + " is not among the kernels that are launched")
	}
	return call{b, r, b.params.Reset()}
}

// tensors adds addresses; that of the absent tensor is 0.
func (c call) tensors(ts ...kernels.Tensor) call {
	for _, t := range ts {
		c.p.U64(address(t))
	}
	return c
}

// rows adds the address of a matrix and how many elements its rows are apart.
func (c call) rows(t kernels.Tensor) call {
	c.p.U64(address(t)).U64(uint64(stride(t)))
	return c
}

// words adds numbers of 8 bytes.
func (c call) words(vs ...uint64) call {
	for _, v := range vs {
		c.p.U64(v)
	}
	return c
}

// ints adds numbers of 4 bytes.
func (c call) ints(vs ...int) call {
	for _, v := range vs {
		if int(int32(v)) != v {
			panic(fmt.Sprintf("kernels: %s: %d is beyond what a dimension may be", c.r.kernel.Name(), v))
		}
		c.p.I32(int32(v))
	}
	return c
}

// floats adds scalars, rounded once.
func (c call) floats(vs ...float64) call {
	for _, v := range vs {
		c.p.F32(float32(v))
	}
	return c
}

// launch gives the stream x times y blocks of that many threads.
func (c call) launch(x, y, threads int) {
	c.r.calls++
	c.b.note(c.r.kernel.Launch(c.b.stream, gpu.Dim{X: x, Y: y}, gpu.Dim{X: threads}, 0, c.p))
}

// each is elements to a thread in kernels over vectors, as in gpu.h.
const each = 4

// maxGridY is how many blocks a grid may have in y.
const maxGridY = math.MaxUint16

// elements launches a kernel over n elements.
func (c call) elements(n int) { c.launch(ceil(n, each*c.r.threads), 1, c.r.threads) }

// grid launches a kernel over the elements of rows x cols.
func (c call) grid(rows, cols int) {
	threads := min(c.r.threads, ceil(cols, 32)*32)
	c.launch(ceil(cols, threads), min(rows, maxGridY), threads)
}

// each launches a kernel that has a thread to each of n rows.
func (c call) each(n int) { c.launch(ceil(n, 32), 1, 32) }

// strips launches a kernel that has a block to 32 columns.
func (c call) strips(cols int) { c.launch(ceil(cols, 32), 1, c.r.threads) }

// warps launches a kernel that has a warp to each of n rows.
func (c call) warps(n int) { c.launch(ceil(n, c.r.threads/32), 1, c.r.threads) }

// ceil is n/d, rounded up.
func ceil(n, d int) int { return (n + d - 1) / d }
