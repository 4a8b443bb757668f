//go:build sim

package sim_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// mixed copies 16 bytes a thread, from a by the first 13 lanes of a warp and from b by the
// others, in pieces of some type.
func mixed(kind string, n, size int) string {
	regs, vec := "%v0", ""
	if n > 1 {
		regs, vec = "{%v0", fmt.Sprintf(".v%d", n)
		for i := 1; i < n; i++ {
			regs += fmt.Sprintf(",%%v%d", i)
		}
		regs += "}"
	}
	width := max(size, 2) * 8
	text := header + fmt.Sprintf(`.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out) {
.reg .b32 %%t, %%l; .reg .b%d %%v<4>; .reg .b64 %%x, %%y, %%o; .reg .pred %%p;
mov.u32 %%t, %%tid.x; mov.u32 %%l, %%laneid; ld.param.u64 %%x, [a]; ld.param.u64 %%y, [b]; ld.param.u64 %%o, [out];
setp.lt.u32 %%p, %%l, 13; selp.b64 %%x, %%x, %%y, %%p; mad.wide.u32 %%x, %%t, 16, %%x; mad.wide.u32 %%o, %%t, 16, %%o;
`, width)
	for at := 0; at < 16; at += n * size {
		text += fmt.Sprintf("ld.global%s.%s %s, [%%x+%d]; st.global%s.%s [%%o+%d], %s;\n", vec, kind, regs, at, vec, kind, at, regs)
	}
	return text + "ret;\n}\n"
}

// context is the primary context of the rig's device.
func (r *rig) context() uint64 {
	return r.out(func(p uint64) { r.must("cuDevicePrimaryCtxRetain", p, uint64(r.device)) })
}

// TestPeers: kernels use the memory of a device that is joined with theirs, once they are
// let, from which nothing follows for that device's kernels; and what is wrong there is found.
func TestPeers(t *testing.T) {
	const n = 64
	g := rand.New(rand.NewPCG(16, 17))
	data := make([]byte, 2*16*n)
	for i := range data {
		data[i] = byte(g.Uint32())
	}
	a, b := data[:16*n], data[16*n:]
	want := slices.Clone(b)
	for i := range n {
		if i%32 < 13 {
			copy(want[16*i:], a[16*i:16*i+16])
		}
	}
	for _, c := range []struct {
		kind    string
		n, size int
	}{{"u32", 1, 4}, {"u32", 2, 4}, {"u32", 4, 4}, {"u64", 1, 8}, {"u64", 2, 8}, {"u8", 1, 1}, {"u16", 4, 2}} {
		for _, toPeer := range []bool{false, true} {
			other := start(t, 1)
			peer := other.context()
			there, result := other.upload(a), other.alloc(16*n)
			r := start(t, 0)
			here := r.upload(b)
			if !toPeer {
				result = r.alloc(16 * n)
			}
			r.must("cuCtxEnablePeerAccess", peer, 0)
			f := r.function(r.module(mixed(c.kind, c.n, c.size)), "k")
			if e := r.run(f, dim{1}, dim{n}, 0, there, here, result); e != success {
				t.Fatalf("%s x %d, to the peer %t: error %d: %s", c.kind, c.n, toPeer, e, findings())
			}
			if !slices.Equal(r.download(result, 16*n), want) {
				t.Errorf("%s x %d, to the peer %t: other bytes", c.kind, c.n, toPeer)
			}
			r.clean()
		}
	}
}

// TestPeersAreJudged: permission has a direction and an end, and memory of a peer has bounds.
func TestPeersAreJudged(t *testing.T) {
	const alreadyEnabled, notEnabled, unsupported = 704, 705, 217
	var can [4][4]bool
	for i := range can {
		for j := range can[i] {
			r := start(t, 0)
			can[i][j] = uint32(r.out(func(p uint64) { r.must("cuDeviceCanAccessPeer", p, uint64(i), uint64(j)) })) == 1
			if can[i][j] != (i != j && i/2 == j/2) {
				t.Errorf("device %d reaches device %d: %t", i, j, can[i][j])
			}
		}
	}
	for _, c := range []struct {
		name, class, says string
		do                func(r, other *rig, mine, peer uint64)
		at                uint64 // from where on 56 bytes are read of 62
	}{
		{"let", "", "", func(r, other *rig, mine, peer uint64) {
			r.must("cuCtxEnablePeerAccess", peer, 0)
			r.want(alreadyEnabled, "cuCtxEnablePeerAccess", peer, 0)
		}, 0},
		{"not let", "other-device", "memory of device 1", func(r, other *rig, mine, peer uint64) {}, 0},
		{"the other way", "other-device", "memory of device 1", func(r, other *rig, mine, peer uint64) {
			other.enter()
			r.must("cuCtxEnablePeerAccess", mine, 0)
			r.enter()
		}, 0},
		{"no more", "other-device", "memory of device 1", func(r, other *rig, mine, peer uint64) {
			r.must("cuCtxEnablePeerAccess", peer, 0)
			r.must("cuCtxDisablePeerAccess", peer)
			r.want(notEnabled, "cuCtxDisablePeerAccess", peer)
		}, 0},
		{"past the end", "out-of-bounds", "not allocated on device 1", func(r, other *rig, mine, peer uint64) { r.must("cuCtxEnablePeerAccess", peer, 0) }, 8},
		{"before the begin", "out-of-bounds", "not allocated on device 1", func(r, other *rig, mine, peer uint64) { r.must("cuCtxEnablePeerAccess", peer, 0) }, ^uint64(15)},
		{"misaligned", "misaligned", "reads 4 bytes", func(r, other *rig, mine, peer uint64) { r.must("cuCtxEnablePeerAccess", peer, 0) }, 2},
		{"not written", "uninitialised", "of device 1 at .* not written", func(r, other *rig, mine, peer uint64) { r.must("cuCtxEnablePeerAccess", peer, 0) }, 4096},
	} {
		other := start(t, 1)
		peer := other.context()
		there := other.upload(make([]byte, 62))
		if c.at == 4096 {
			there, c.at = other.alloc(60), 0
		}
		r := start(t, 0)
		mine := r.context()
		here := r.alloc(64)
		c.do(r, other, mine, peer)
		f := r.function(r.module(ptx(t, "bugs")), "scale")
		e := r.run(f, dim{1}, dim{14}, 0, there+c.at, here, 14)
		if c.class == "" {
			if e != success || binary.LittleEndian.Uint32(r.download(here, 4)) != 0 {
				t.Errorf("%s: error %d: %s", c.name, e, findings())
			}
			continue
		}
		if e == success {
			t.Errorf("%s: no error", c.name)
		}
		r.found(c.class, c.says)
	}
	r := start(t, 2)
	far := start(t, 0).context()
	r.enter()
	r.want(unsupported, "cuCtxEnablePeerAccess", far, 0)
	r.want(invalidValue, "cuCtxEnablePeerAccess", far, 1)
}
