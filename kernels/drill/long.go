package drill

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// longCase is a call over operands so long that backends store past the caches.
// Their rows repeat a short period, so that the oracle computes little: what is
// expected repeats as well, but for what a kernel continues.
type longCase struct {
	ops    []operand // one period
	repeat int
	seed   uint64
	call   call
}

// addLong appends a case whose operands, but for the fixed ones, are repeated.
// No operand is strided or the same as another.
func (tb *table) addLong(name string, repeat int, f call, ops ...operand) {
	i, work := len(tb.cases), 0
	c := &longCase{ops: ops, repeat: repeat, seed: hash(hashName(tb.seed, tb.kernel), uint64(i)), call: f}
	for _, o := range ops {
		work = max(work, o.rows*o.cols*repeat)
	}
	tb.cases = append(tb.cases, &Case{Kernel: tb.kernel, Name: fmt.Sprintf("%s_%d", name, i), Level: tb.level, Work: work, Elements: c.elements(), expect: c.expect})
}

// expect runs one period on the oracle, or, where a fixed operand is an output,
// which goes on from period to period, all of them.
func (c *longCase) expect(oracle kernels.Backend) (check, kernels.Digest, error) {
	im := layout(c.ops, make([]int, len(c.ops)), false, c.seed)
	times := 1
	for _, o := range c.ops {
		if o.once && o.role == output {
			times = c.repeat
		}
	}
	one := testCase{ops: c.ops, call: func(k kernels.Kernels, t []kernels.Tensor) any {
		for range times {
			c.call(k, t)
		}
		return nil
	}}
	want, _, err := one.run(oracle, im)
	if err != nil {
		return nil, kernels.Digest{}, err
	}
	var sum kernels.Digest
	one.eachOutput(im, func(b, j int) { mixElement(&sum, c.seed, uint64(b)<<32|uint64(j), want[b][j]) })
	after := &image{bufs: want, places: im.places}
	return func(b kernels.Backend) (int, *Difference) { return c.compare(b, im, after) }, sum, nil
}

// elements is how many elements are compared: of every operand and its guards.
func (c *longCase) elements() (n int) {
	for _, o := range c.ops {
		if !o.absent {
			n += front + c.times(o)*o.rows*o.cols + back
		}
	}
	return n
}

// compare runs the case on b and compares every operand, and its guards, with
// what the period was before and must be after.
func (c *longCase) compare(b kernels.Backend, before, after *image) (elements int, d *Difference) {
	ts := make([]kernels.Tensor, len(c.ops))
	for i, o := range c.ops {
		if o.absent {
			continue
		}
		n := o.rows * c.times(o)
		buf, err := b.Alloc(front + n*o.cols + back)
		if err != nil {
			return 0, failed(err)
		}
		defer b.Free(buf)
		ts[i] = kernels.Flat(buf).Range(front, front+n*o.cols).As(n, o.cols)
		c.guards(i, buf, func(t kernels.Tensor, x []float32) { b.Write(t, x) })
		c.periods(i, ts[i], before, func(t kernels.Tensor, x []float32) { b.Write(t, x) })
	}
	c.call(b, ts)
	got := make([]float32, 0)
	compare := func(i int, kind Kind, name string) func(t kernels.Tensor, x []float32) {
		return func(t kernels.Tensor, x []float32) {
			if d != nil {
				return
			}
			got = append(got[:0], x...)
			if err := b.Read(got, t); err != nil {
				d = failed(err)
				return
			}
			elements += len(x)
			if j := firstDifference(got, x); j >= 0 {
				at := t.Off + j - front
				d = &Difference{Kind: kind, At: fmt.Sprintf("%s (element %d of %d)", name, at, ts[i].Len()),
					Got: math.Float32bits(got[j]), Want: math.Float32bits(x[j])}
			}
		}
	}
	// As in short cases, first all that must have kept its bits.
	for i, o := range c.ops {
		if o.absent {
			continue
		}
		c.guards(i, ts[i].Buf, compare(i, Guard, "beside "+o.name))
		if o.role == input {
			c.periods(i, ts[i], after, compare(i, ReadOnly, o.name))
		}
	}
	for i, o := range c.ops {
		if !o.absent && o.role != input {
			c.periods(i, ts[i], after, compare(i, Output, o.name))
		}
	}
	if err := b.Sync(); err != nil && d == nil {
		d = failed(err)
	}
	return elements, d
}

// times is how often the period of an operand is repeated.
func (c *longCase) times(o operand) int {
	if o.once {
		return 1
	}
	return c.repeat
}

// periods calls f for every period of operand i, with its content.
func (c *longCase) periods(i int, t kernels.Tensor, im *image, f func(t kernels.Tensor, x []float32)) {
	o, x := c.ops[i], im.content(c.ops, i)
	for r := range c.times(o) {
		f(t.RowRange(r*o.rows, (r+1)*o.rows), x)
	}
}

// guards calls f for what lies before and behind operand i.
func (c *longCase) guards(i int, buf kernels.Buffer, f func(t kernels.Tensor, x []float32)) {
	x := make([]float32, front+back)
	for j := range x {
		x[j] = guard(hash(c.seed, uint64(i)<<32|uint64(j)))
	}
	all := kernels.Flat(buf)
	f(all.Range(0, front), x[:front])
	f(all.Range(all.Len()-back, all.Len()), x[front:])
}
