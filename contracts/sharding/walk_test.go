package sharding

import "testing"

// tiny is a model of four units, the last tied where asked for, on which peaks
// can be told by hand.
func tiny(stage, micro int, head ...Unit) ZeRO {
	units := []Unit{{Elements: 100}, {Elements: 30}, {Elements: 20}, {Elements: 7}}
	return ZeRO{Stage: stage, DP: 1, Workers: 1, MicroBatches: micro, Units: append(units, head...)}
}

// What a pass holds at the most: the unit in use and the next one, and where a
// tied head works inside the final norm's pass, the embedding (or the copy)
// beside the norm and the block that comes next.
func TestPeaksOfPasses(t *testing.T) {
	tied, copied := Unit{Elements: 100, Tied: true}, Unit{Elements: 100, Tied: true, Copied: true}
	for _, x := range []struct {
		name string
		z    ZeRO
		want peak
	}{
		// Gathered: embedding and first block; with a gradient: the embedding alone.
		{"untied", tiny(3, 1), peak{130, 100, 200}},
		// Backward: norm, head, and the last block, whose gather is under way.
		{"tied", tiny(3, 1, tied), peak{130, 107, 234}},
		{"copied", tiny(3, 1, copied), peak{130, 107, 234}},
		{"weights stay whole", tiny(2, 1, tied), peak{0, 107, 107}},
		{"one buffer for several micro-batches", tiny(3, 2, tied), peak{130, 257, 387}},
		{"a stage in the middle", ZeRO{Stage: 3, DP: 1, Workers: 1, MicroBatches: 1, Units: []Unit{{Elements: 30}, {Elements: 20}}}, peak{50, 30, 70}},
		{"last stage with a copied head", ZeRO{Stage: 3, DP: 1, Workers: 1, MicroBatches: 1, Units: []Unit{{Elements: 5}, {Elements: 7}, copied}}, peak{112, 107, 219}},
		{"nothing", ZeRO{Stage: 3, DP: 1, Workers: 1, MicroBatches: 1}, peak{}},
	} {
		if got := x.z.peak(); got != x.want {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
	}
}

// Under a map a rank has the moments that it is given, and no more.
func TestMemoryUnderAMap(t *testing.T) {
	z := ZeRO{Stage: 1, DP: 3, Workers: 6, MicroBatches: 1, Moments: 2, Units: []Unit{
		{Elements: 10, Held: []int{0, 10, 0}}, {Elements: 7, Held: []int{7, 0, 0}}, {Elements: 10, Tied: true, Held: []int{0, 10, 0}}}}
	for rank, want := range []uint64{2 * 4 * 7, 2 * 4 * 10, 0} {
		m := z.Memory(rank)
		if m.Moments != want || m.Weights != 4*17 || m.Gradients != 2*4*27 || m.Passing != 0 {
			t.Errorf("rank %d: %+v, want moments of %d bytes", rank, m, want)
		}
	}
	if got := z.WireBytes(); got != 4*2*(2*27+17) {
		t.Errorf("%d bytes on the wire, want an all-reduce of 27 and broadcasts of 17 elements", got)
	}
}

// A copied head has weights but no moments.
func TestMemoryOfACopiedHead(t *testing.T) {
	z := ZeRO{Stage: 3, DP: 2, Workers: 2, MicroBatches: 1, Moments: 1, Units: []Unit{{Elements: 3}, {Elements: 11, Tied: true, Copied: true}}}
	m := z.Memory(0)
	if m.Weights != 4*(2+6) || m.Moments != 4*2 || m.Gradients != 4*(2+6) {
		t.Errorf("%+v", m)
	}
}
