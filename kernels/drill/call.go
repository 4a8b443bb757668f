package drill

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/lockstep-ml/lockstep/kernels"
)

// testCase is one call of one kernel.
type testCase struct {
	seed   uint64
	ops    []operand
	offs   []int // of each operand, in elements, modulo 16
	shared bool  // all operands in one buffer
	raw    bool  // outputs are compared with what a NaN carries
	// call runs the kernel; what the kernel gives beside tensors is returned.
	call func(k kernels.Kernels, t []kernels.Tensor) any
	// definition, if any, is what call must return, from the operands' contents, none
	// of which it sets.
	definition func(x [][]float32) any
}

// elements is how many elements the buffers of the case have together.
func (c *testCase) elements() (n int) {
	_, sizes := places(c.ops, c.offs, c.shared)
	for _, size := range sizes {
		n += size
	}
	return n
}

// expect runs the case on the oracle, unless its definition says all.
func (c *testCase) expect(oracle kernels.Backend) (check, kernels.Digest, error) {
	im := layout(c.ops, c.offs, c.shared, c.seed)
	var want [][]float32
	var wantResult any
	if c.definition == nil {
		var err error
		if want, wantResult, err = c.run(oracle, im); err != nil {
			return nil, kernels.Digest{}, err
		}
	} else {
		x := make([][]float32, len(c.ops))
		for i := range c.ops {
			x[i] = im.content(c.ops, i)
		}
		want, wantResult = im.bufs, c.definition(x) // of kernels that set no tensor
	}
	var sum kernels.Digest
	c.eachOutput(im, func(b, j int) { mixElement(&sum, c.seed, uint64(b)<<32|uint64(j), want[b][j]) })
	if wantResult != nil {
		mixElement(&sum, kernels.TensorID(describe(wantResult)), c.seed, 1)
	}
	return func(b kernels.Backend) (elements int, d *Difference) {
		got, result, err := c.run(b, im)
		if err != nil {
			return 0, failed(err)
		}
		for _, x := range got {
			elements += len(x)
		}
		if d := c.kept(im, got); d != nil {
			return elements, d
		}
		if d := c.equal(im, got, want); d != nil {
			return elements, d
		}
		if !reflect.DeepEqual(result, wantResult) {
			return elements, &Difference{Kind: Returned, Text: fmt.Sprintf("result %s, want %s", describe(result), describe(wantResult))}
		}
		return elements, nil
	}, sum, nil
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
func (c *testCase) kept(im *image, got [][]float32) *Difference {
	for b, x := range got {
		for j, v := range x {
			o := im.owner[b][j]
			if o >= 0 && c.ops[o].role != input {
				continue
			}
			if was := im.bufs[b][j]; kernels.Bits(v) != kernels.Bits(was) {
				kind := Guard
				if o >= 0 {
					kind = ReadOnly
				}
				return &Difference{Kind: kind, At: im.where(c.ops, b, j), Got: math.Float32bits(v), Want: math.Float32bits(was)}
			}
		}
	}
	return nil
}

// equal demands that the outputs have the oracle's bits.
func (c *testCase) equal(im *image, got, want [][]float32) *Difference {
	d := Difference{Kind: Output}
	c.eachOutput(im, func(b, j int) {
		d.Of++
		v, w := got[b][j], want[b][j]
		if kernels.Bits(v) != kernels.Bits(w) || c.raw && math.Float32bits(v) != math.Float32bits(w) {
			if d.Differ == 0 {
				d.At, d.Got, d.Want = im.where(c.ops, b, j), math.Float32bits(v), math.Float32bits(w)
			}
			d.Differ++
		}
	})
	if d.Differ == 0 {
		return nil
	}
	return &d
}

// eachOutput calls f for every element of an output: number j of buffer b.
func (c *testCase) eachOutput(im *image, f func(b, j int)) {
	for b, owner := range im.owner {
		for j, o := range owner {
			if o >= 0 && c.ops[o].role == output {
				f(b, j)
			}
		}
	}
}
