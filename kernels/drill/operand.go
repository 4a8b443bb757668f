package drill

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// role says what a kernel may do with an operand.
type role uint8

const (
	around  role = iota // no operand: guards and the gaps between rows
	input               // must keep its bits
	output              // set or updated: compared with the oracle's
	scratch             // may hold anything afterwards
)

// operand describes one tensor of a case.
type operand struct {
	name       string
	role       role
	rows, cols int
	gap        int // elements between the end of a row and the next one's start
	fill       fill
	alias      int // operand that this one is, by index; -1 for one of its own
	absent     bool
	once       bool // in a long case: not repeated
}

// in is a read-only operand.
func in(name string, rows, cols int, f fill) operand {
	return operand{name: name, role: input, rows: rows, cols: cols, fill: f, alias: -1}
}

// out is an operand that the kernel sets, whatever it held.
func out(name string, rows, cols int) operand {
	return operand{name: name, role: output, rows: rows, cols: cols, fill: dirt, alias: -1}
}

// update is an operand that the kernel continues from.
func update(name string, rows, cols int, f fill) operand {
	return operand{name: name, role: output, rows: rows, cols: cols, fill: f, alias: -1}
}

// same is an operand in the memory of operand i, which becomes an output.
func same(name string, i int) operand { return operand{name: name, alias: i} }

// absent is the absent tensor.
func absent(name string) operand { return operand{name: name, absent: true, alias: -1} }

// strided puts gap elements between rows.
func (o operand) strided(gap int) operand {
	o.gap = gap
	return o
}

// fixed makes an operand of a long case one that is not repeated.
func (o operand) fixed() operand {
	o.once = true
	return o
}

// Guards around every operand: front keeps the alignment of a buffer's start,
// back is longer than the widest tile row.
const (
	front = 16
	back  = 96
)

// place is where an operand lies.
type place struct{ buf, off, stride int }

// image is the memory of a case before the call.
type image struct {
	bufs   [][]float32
	owner  [][]int8 // operand of each element, or -1
	places []place
}

// places lays the operands out, each in a buffer of its own or all in one, at
// offset offs[i] modulo 16 elements, and gives the sizes of the buffers.
func places(ops []operand, offs []int, shared bool) (at []place, sizes []int) {
	at = make([]place, len(ops))
	for i, o := range ops {
		if o.absent || o.alias >= 0 {
			continue
		}
		if len(sizes) == 0 || !shared {
			sizes = append(sizes, 0)
		}
		b := len(sizes) - 1
		p := place{buf: b, off: (sizes[b]+front-1)/front*front + front + offs[i], stride: o.cols + o.gap}
		at[i] = p
		sizes[b] = p.off + max(o.rows-1, 0)*p.stride + o.cols + back
	}
	return at, sizes
}

// layout is places with the operands' contents.
func layout(ops []operand, offs []int, shared bool, seed uint64) *image {
	at, sizes := places(ops, offs, shared)
	im := &image{places: at}
	for b, n := range sizes {
		im.bufs = append(im.bufs, make([]float32, n))
		im.owner = append(im.owner, make([]int8, n))
		for j := range n {
			im.owner[b][j] = -1
		}
	}
	for i, o := range ops {
		switch {
		case o.absent:
		case o.alias >= 0:
			im.places[i] = im.places[o.alias]
		default:
			im.put(i, o, hashName(seed, o.name))
		}
	}
	for b, owner := range im.owner {
		for j, o := range owner {
			if o < 0 {
				im.bufs[b][j] = guard(hash(seed, uint64(b)<<32|uint64(j)))
			}
		}
	}
	return im
}

// put writes the content of operand i.
func (im *image) put(i int, o operand, seed uint64) {
	p := im.places[i]
	for r := range o.rows {
		for c := range o.cols {
			j := p.off + r*p.stride + c
			im.bufs[p.buf][j] = o.fill(hash(seed, uint64(r*o.cols+c)))
			im.owner[p.buf][j] = int8(i)
		}
	}
}

// content is the elements of operand i, row by row.
func (im *image) content(ops []operand, i int) []float32 {
	o, p := ops[i], im.places[i]
	out := make([]float32, 0, o.rows*o.cols)
	for r := range o.rows {
		lo := p.off + r*p.stride
		out = append(out, im.bufs[p.buf][lo:lo+o.cols]...)
	}
	return out
}

// tensors are the operands over the buffers of one backend.
func (im *image) tensors(ops []operand, bufs []kernels.Buffer) []kernels.Tensor {
	ts := make([]kernels.Tensor, len(ops))
	for i, o := range ops {
		if o.absent {
			continue
		}
		if o.alias >= 0 {
			o.rows, o.cols = ops[o.alias].rows, ops[o.alias].cols
		}
		p := im.places[i]
		ts[i] = kernels.Tensor{Buf: bufs[p.buf], Off: p.off, Rows: o.rows, Cols: o.cols, Stride: p.stride}
	}
	return ts
}

// where names element j of buffer b for a message.
func (im *image) where(ops []operand, b, j int) string {
	if i := im.owner[b][j]; i >= 0 {
		p, o := im.places[i], ops[i]
		k := j - p.off
		return fmt.Sprintf("%s[%d][%d] (element %d of %dx%d)", o.name, k/p.stride, k%p.stride, k/p.stride*o.cols+k%p.stride, o.rows, o.cols)
	}
	near, dist := "", -1
	for i, o := range ops {
		p := im.places[i]
		if o.absent || o.alias >= 0 || p.buf != b {
			continue
		}
		last := p.off + max(o.rows-1, 0)*p.stride + o.cols
		switch {
		case j >= last && (dist < 0 || j-last < dist):
			near, dist = fmt.Sprintf("%d elements past the end of %s", j-last+1, o.name), j-last
		case j < p.off && (dist < 0 || p.off-j < dist):
			near, dist = fmt.Sprintf("%d elements before %s", p.off-j, o.name), p.off-j
		case j >= p.off && j < last:
			return fmt.Sprintf("the gap after row %d of %s", (j-p.off)/p.stride, o.name)
		}
	}
	return near
}
