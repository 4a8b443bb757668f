package kerneltest

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/lockstep-ml/lockstep/kernels"
)

// testCase is one call of one kernel.
type testCase struct {
	kernel, name string
	seed         uint64
	work         int
	ops          []operand
	offs         []int // of each operand, in elements, modulo 16
	shared       bool  // all operands in one buffer
	raw          bool  // outputs are compared with what a NaN carries
	// call runs the kernel; what the kernel gives beside tensors is returned.
	call func(k kernels.Kernels, t []kernels.Tensor) any
	// expect, if any, is what call must return, from the operands' contents.
	expect func(x [][]float32) any
}

// check runs the case on both backends; an error says where they differ first.
func (c *testCase) check(b, oracle kernels.Backend) error {
	im := layout(c.ops, c.offs, c.shared, c.seed)
	want, wantResult, err := c.run(oracle, im)
	if err != nil {
		return fmt.Errorf("oracle: %w", err)
	}
	if c.expect != nil {
		x := make([][]float32, len(c.ops))
		for i := range c.ops {
			x[i] = im.content(c.ops, i)
		}
		wantResult = c.expect(x)
	}
	got, gotResult, err := c.run(b, im)
	if err != nil {
		return err
	}
	if err := c.kept(im, got); err != nil {
		return err
	}
	if err := c.equal(im, got, want); err != nil {
		return err
	}
	if !reflect.DeepEqual(gotResult, wantResult) {
		return fmt.Errorf("result %s, want %s", describe(gotResult), describe(wantResult))
	}
	return nil
}

// describe prints a result; the text of a digest leaves nothing out.
func describe(result any) string {
	switch r := result.(type) {
	case kernels.Digest:
		text, _ := r.MarshalText() // never fails
		return string(text)
	case hashChange:
		return fmt.Sprintf("%d changed, digest %s", r.Changed, describe(r.Digest))
	}
	return fmt.Sprint(result)
}

// run calls the kernel on b over a copy of the image and reads all memory back.
func (c *testCase) run(b kernels.Backend, im *image) (bufs [][]float32, result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	mem := make([]kernels.Buffer, len(im.bufs))
	for i, x := range im.bufs {
		if mem[i], err = b.Alloc(len(x)); err != nil {
			return nil, nil, err
		}
		defer b.Free(mem[i])
		b.Write(kernels.Flat(mem[i]), x)
	}
	result = c.call(b, im.tensors(c.ops, mem))
	bufs = make([][]float32, len(mem))
	for i, m := range mem {
		bufs[i] = make([]float32, m.Len())
		err = errors.Join(err, b.Read(bufs[i], kernels.Flat(m)))
	}
	return bufs, result, errors.Join(err, b.Sync())
}

// kept demands that everything but outputs and scratch still has its bits.
func (c *testCase) kept(im *image, got [][]float32) error {
	for b, x := range got {
		for j, v := range x {
			o := im.owner[b][j]
			if o >= 0 && c.ops[o].role != input {
				continue
			}
			if was := im.bufs[b][j]; kernels.Bits(v) != kernels.Bits(was) {
				what := "guard"
				if o >= 0 {
					what = "read-only operand"
				}
				return fmt.Errorf("%s changed: %s: now %s, was %s", what, im.where(c.ops, b, j), show(v), show(was))
			}
		}
	}
	return nil
}

// equal demands that the outputs have the oracle's bits.
func (c *testCase) equal(im *image, got, want [][]float32) error {
	first, n, total := "", 0, 0
	for b, x := range got {
		for j, v := range x {
			if o := im.owner[b][j]; o < 0 || c.ops[o].role != output {
				continue
			}
			total++
			w := want[b][j]
			if kernels.Bits(v) != kernels.Bits(w) || c.raw && math.Float32bits(v) != math.Float32bits(w) {
				if n == 0 {
					first = fmt.Sprintf("%s: got %s, want %s", im.where(c.ops, b, j), show(v), show(w))
				}
				n++
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%s; %d of %d output elements differ", first, n, total)
	}
	return nil
}

// show gives a value as bits and as a decimal.
func show(x float32) string {
	return fmt.Sprintf("%#08x (%v)", math.Float32bits(x), x)
}
