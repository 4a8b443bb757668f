package drill

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// impossible is a digest that no result has: fewer elements than non-finite
// ones.
var impossible = kernels.Digest{NonFinite: math.MaxUint64}

// maxCount bounds the work that a record from a file can ask for.
const maxCount = 1 << 24

// Expect is the digest of the right result of a record's operation, computed
// from its other fields. A record that describes no possible operation gets a
// digest that no result has.
func Expect(r Record) kernels.Digest {
	if r.check() != nil {
		return impossible
	}
	var d digester
	me := slices.Index(r.Group, r.Rank)
	switch r.Op {
	case names.OpBarrier:
	case names.OpSplit:
		return DigestGroup(r.Group, me)
	case names.OpAllReduceInt:
		for i := range r.Count {
			d.word(i, r.expectWord(i))
		}
	case names.OpAllGatherBytes:
		for g, rank := range r.Group {
			d.bytes(g, r.bytesOf(rank))
		}
	default:
		r.expectTensor(&d, me)
	}
	return d.sum
}

// Verify is nil if the record shows a completed operation with the right
// result, else what is wrong.
func Verify(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.Err != "" {
		return errors.New(r.Err)
	}
	if want := Expect(r); r.Digest != want {
		got, _ := r.Digest.MarshalText()
		expected, _ := want.MarshalText()
		return fmt.Errorf("digest of the result is %s, want %s", got, expected)
	}
	return nil
}

// check refuses records that Expect cannot follow.
func (r Record) check() error {
	n := len(r.Group)
	switch {
	case !slices.Contains(r.Group, r.Rank):
		return fmt.Errorf("rank %d is not in group %v", r.Rank, r.Group)
	case r.Count < 0 || r.Count > maxCount:
		return fmt.Errorf("count %d: must lie in [0,%d]", r.Count, maxCount)
	case r.Input != Integer && r.Input != Order:
		return fmt.Errorf("input %q: want %s or %s", r.Input, Integer, Order)
	case r.Reduction != kernels.Sum.String() && r.Reduction != kernels.Max.String():
		return fmt.Errorf("reduction %q: want %s or %s", r.Reduction, kernels.Sum, kernels.Max)
	}
	switch r.Op {
	case names.OpBroadcast, names.OpSend, names.OpRecv:
		if !slices.Contains(r.Group, r.Peer) {
			return fmt.Errorf("%s with rank %d, which is not in group %v", r.Op, r.Peer, r.Group)
		}
	case names.OpReduceScatter, names.OpAllGather:
		if r.Bounds != nil {
			_, err := shard.CheckBounds(r.Bounds, r.Count, n)
			return err
		}
	case names.OpAllReduce, names.OpAllReduceInt, names.OpAllGatherBytes, names.OpBarrier, names.OpSplit:
	default:
		return fmt.Errorf("operation %q is unknown", r.Op)
	}
	return nil
}

// expectTensor digests the right contents of the result's buffer.
func (r Record) expectTensor(d *digester, me int) {
	lo, hi := 0, r.Count
	if r.Op == names.OpReduceScatter {
		p := r.Part(me)
		lo, hi = p.Lo, p.Hi
	}
	base := Guards
	if r.Op == names.OpReduceScatter && !r.InPlace {
		base -= lo // dst is a buffer of its own
	}
	for i := lo; i < hi; i++ {
		d.float(base+i, r.expectElement(i))
	}
	end := base + hi
	if r.InPlace {
		end = base + r.Count
	}
	for j := range Guards {
		d.float(j, guard(j))
		d.float(end+j, guard(end+j))
	}
}

// expectElement is element i of the result.
func (r Record) expectElement(i int) float32 {
	s := r.source()
	switch r.Op {
	case names.OpBroadcast, names.OpRecv:
		return s.value(r.Peer, i)
	case names.OpSend:
		return s.value(r.Rank, i)
	case names.OpAllGather:
		for g := range r.Group {
			if r.Part(g).Has(i) {
				return s.value(r.Group[g], i)
			}
		}
	}
	if s.kind == Integer {
		return exact(s, r.Group, i)
	}
	x := make([]float32, len(r.Group))
	for g, rank := range r.Group {
		x[g] = s.value(rank, i)
	}
	if s.op == kernels.Max {
		return maximum(x)
	}
	return recursiveTree(x)
}

// Part is the part of the whole vector that the g-th rank of the group gives to an
// all-gather, or gets of a reduce-scatter.
func (r Record) Part(g int) shard.Range {
	if r.Bounds == nil {
		return shard.Part{Index: g, Size: len(r.Group)}.Of(r.Count)
	}
	return shard.Range{Lo: r.Bounds[g], Hi: r.Bounds[g+1]}
}

// exact reduces Integer inputs in integers.
func exact(s source, group []int, i int) float32 {
	const beyond = 1 << 40 // an infinity, for the maximum
	sum, most := int64(0), int64(-beyond)
	var up, down, nan bool
	result := term{neg: true}
	for _, rank := range group {
		t := s.term(rank, i)
		result.e = t.e
		result.neg = result.neg && t.m == 0 && t.neg
		m := t.m
		switch {
		case t.nan:
			nan = true
			continue
		case t.sign != 0:
			m = int64(t.sign) * beyond
		default:
			sum += m
		}
		up, down = up || t.sign > 0, down || t.sign < 0
		most = max(most, m)
	}
	if s.op == kernels.Max {
		up, down, nan, sum = most == beyond, most == -beyond, false, most
	}
	switch {
	case nan || up && down:
		result.nan = true
	case up:
		result.sign = 1
	case down:
		result.sign = -1
	}
	result.m = sum
	return result.float()
}

// recursiveTree is the canonical sum by another road: the largest power of two
// below n on the left, the rest on the right.
func recursiveTree(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	half := 1
	for 2*half < len(x) {
		half *= 2
	}
	return recursiveTree(x[:half]) + recursiveTree(x[half:])
}

// maximum takes the first of the largest; NaN never is.
func maximum(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// expectWord reduces element i of the integer inputs.
func (r Record) expectWord(i int) (v uint64) {
	s := r.source()
	for _, rank := range r.Group {
		w := s.word(rank, i)
		if s.op == kernels.Max {
			v = max(v, w)
		} else {
			v += w
		}
	}
	return v
}
