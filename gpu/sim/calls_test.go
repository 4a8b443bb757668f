//go:build sim

package sim_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// functionsOfDriver are the rows of the driver's table: names of symbols, and the
// parameters of each as they are declared.
func functionsOfDriver(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "internal", "drv", "api.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^cu\w+ (cu\w+) \((.+)\)$`).FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = strings.Split(m[2], ",")
	}
	if len(out) < 150 {
		t.Fatalf("the table has %d functions", len(out))
	}
	return out
}

// TestNullPointers: every function of the table takes null for each pointer, and handles
// that are none or of another kind, and says what is wrong by its result.
func TestNullPointers(t *testing.T) {
	handle := regexp.MustCompile(`^ *CU(stream|event|context|module|function) \w+$`)
	pointer := regexp.MustCompile(`\*`)
	for name, params := range functionsOfDriver(t) {
		for _, number := range []uint64{0, 1, math.MaxUint32, math.MaxUint64} {
			r := start(t, 0)
			m := r.module(ptx(t, "bugs"))
			of := map[string]uint64{"stream": r.stream(), "event": r.event(), "module": m, "function": r.function(m, "scale")}
			of["context"] = r.out(func(p uint64) { r.must("cuCtxGetCurrent", p) })
			for _, kind := range []string{"none", "stream", "event", "context", "module", "function"} {
				args, pointers := make([]uint64, len(params)), 0
				for i, p := range params {
					switch h := handle.FindStringSubmatch(p); {
					case pointer.MatchString(p):
						pointers++
					case h != nil && (kind != h[1] || kind == "stream"):
						args[i] = of[kind]
					case h == nil:
						args[i] = number
					}
				}
				if number > 0 && anywhere[name] {
					continue
				}
				code := lib.Call(name, args...)
				if onlyOut := pointers == len(params); onlyOut && code == success && !mayBeNull[name] {
					t.Errorf("%s with null for all that it writes: success", name)
				}
				lib.Call("cuCtxSetCurrent", of["context"]) // the call may have ended it
			}
		}
	}
	r := start(t, 0)
	if e := r.run(r.function(r.module(ptx(t, "bugs")), "scale"), dim{1}, dim{64}, 0, r.upload(make([]byte, 256)), r.alloc(256), 64); e != success {
		t.Errorf("after all that: error %d", e)
	}
}

// anywhere are functions that take any address for one of the host, as the driver does.
var anywhere = map[string]bool{"cuMemcpy": true, "cuMemcpyAsync": true}

// mayBeNull are functions that write nothing where their pointers are null.
var mayBeNull = map[string]bool{"cuCtxGetStreamPriorityRange": true, "cuCtxSynchronize": true, "cuMemFreeHost": true, "cuCtxPopCurrent_v2": true}

// TestSizes: what no device has room for, and no memory reaches, is refused.
func TestSizes(t *testing.T) {
	r := start(t, 0)
	p, out := harness.Alloc(16)
	d := r.upload(make([]byte, 1024))
	f := r.function(r.module(ptx(t, "bugs")), "scale")
	huge := []uint64{1 << 36, 1 << 40, math.MaxInt64, 1 << 63, math.MaxUint64 - 1200, math.MaxUint64 - 1023, math.MaxUint64 - 768, math.MaxUint64 - 600, math.MaxUint64 - 512,
		math.MaxUint64 - 511, math.MaxUint64 - 256, math.MaxUint64 - 255, math.MaxUint64 - 128, math.MaxUint64 - 1, math.MaxUint64}
	for _, n := range huge {
		r.want(outOfMemory, "cuMemAlloc_v2", p, n)
		if n > 1<<47 { // the host may have more than 64 GB of addresses
			r.want(outOfMemory, "cuMemHostAlloc", p, n, 0)
			r.want(outOfMemory, "cuMemAllocHost_v2", p, n)
		}
		r.want(invalidValue, "cuMemcpyHtoD_v2", d, p, n)
		r.want(invalidValue, "cuMemcpyDtoH_v2", p, d, n)
		r.want(invalidValue, "cuMemcpyDtoD_v2", d, d+512, n)
		r.want(invalidValue, "cuMemcpyHtoDAsync_v2", d, p, n, 0)
		r.want(invalidValue, "cuMemcpyDtoHAsync_v2", p, d, n, 0)
		r.want(invalidValue, "cuMemcpyPeer", d, 0, d+512, 0, n)
		r.want(invalidValue, "cuMemsetD8_v2", d, 0, n)
		r.want(invalidValue, "cuMemsetD16_v2", d, 0, n)
		r.want(invalidValue, "cuMemsetD32_v2", d, 0, n)
		r.want(invalidValue, "cuMemcpyDtoH_v2", p, d+n, 16)
	}
	for _, n := range []uint64{math.MaxInt32, 1 << 31, math.MaxUint32} {
		r.want(invalidValue, "cuFuncSetAttribute", f, 8, n)
	}
	// As many words as make a small number of bytes, were it not for the carry.
	r.want(invalidValue, "cuMemsetD32_v2", d, 0, 1<<62+1)
	r.want(invalidValue, "cuMemsetD16_v2", d, 0, 1<<63+1)
	r.want(invalidValue, "cuMemsetD32_v2", d+2, 0, 1)
	r.want(invalidValue, "cuMemsetD16_v2", d+1, 0, 1)
	for _, n := range []uint64{0, 1, 1024} {
		r.must("cuMemsetD8_v2", d, 0, n)
		r.must("cuMemcpyDtoD_v2", d, d+1024-n, n)
	}
	r.want(invalidValue, "cuMemAlloc_v2", p, 0)
	r.want(invalidValue, "cuMemHostAlloc", p, 0, 0)
	for _, c := range []struct {
		grid, block dim
		shared      int
		want        int
	}{
		{dim{0}, dim{1}, 0, invalidValue}, {dim{1, 0}, dim{1}, 0, invalidValue}, {dim{1}, dim{1, 1, 0}, 0, invalidValue},
		{dim{1 << 31}, dim{1}, 0, invalidValue}, {dim{1<<31 - 1, 65535, 65535}, dim{1}, 0, 701}, {dim{1 << 24}, dim{1}, 0, 701}, {dim{1, 65536}, dim{1}, 0, invalidValue},
		{dim{1}, dim{math.MaxUint32, math.MaxUint32, math.MaxUint32}, 0, invalidValue}, {dim{math.MaxUint32, math.MaxUint32, math.MaxUint32}, dim{1}, 0, invalidValue},
		{dim{1}, dim{1 << 16, 1 << 16, 1}, 0, invalidValue}, {dim{1}, dim{1}, 49153, invalidValue}, {dim{1}, dim{1}, math.MaxUint32, invalidValue},
		{dim{1, 1, 65536}, dim{1}, 0, invalidValue}, {dim{1}, dim{1024}, 49152, success},
	} {
		if e := r.launch(f, c.grid, c.block, c.shared, 0, d, d+512, 64); e != c.want {
			t.Errorf("%v blocks of %v threads, %d bytes: error %d, want %d", c.grid, c.block, c.shared, e, c.want)
		}
	}
	r.want(invalidValue, "cuLaunchKernel", f, 1, 1, 1, 1, 1, 1, 0, 0, p, p) // parameters twice
	large := r.function(r.module(header+".visible .entry k() {\n.shared .b8 s[200000]; st.shared.u32 [s], 1;\nret;\n}\n"), "k")
	if e := r.launch(large, dim{1}, dim{1}, 40000, 0); e != invalidValue {
		t.Errorf("240,000 bytes of shared memory in all: error %d", e)
	}
	r.want(invalidValue, "cuFuncSetAttribute", large, 8, 40000)
	r.want(success, "cuFuncSetAttribute", large, 8, 20000)
	blocks := func(f, threads uint64) uint64 {
		return r.out(func(q uint64) { r.must("cuOccupancyMaxActiveBlocksPerMultiprocessor", q, f, threads, 0) })
	}
	product := r.function(r.module(ptx(t, "correct")), "matmul") // of at most 256 threads
	if a, b := blocks(product, 256), blocks(product, 257); a == 0 || b != 0 {
		t.Errorf("%d and %d blocks of 256 and 257 threads", a, b)
	}
	r.must("cuCtxSynchronize")
	for i := range out {
		if out[i] != 0 {
			t.Errorf("a call that failed has written %x", out)
			break
		}
	}
	if free := r.out(func(q uint64) { r.must("cuMemGetInfo_v2", q, p) }); free == 0 {
		t.Error("nothing is free")
	}
	r.clean()
}

// TestFreedPinned: memory of the host that another device's copy still reads or writes is
// freed: cuMemFreeHost waits for its own context alone.
func TestFreedPinned(t *testing.T) {
	const n = 1 << 20 // which is given back to the system
	for name, copy := range map[string]func(r *rig, p, d, s uint64){
		"to the device": func(r *rig, p, d, s uint64) { r.must("cuMemcpyHtoDAsync_v2", d, p, n, s) },
		"to the host":   func(r *rig, p, d, s uint64) { r.must("cuMemcpyDtoHAsync_v2", p, d, n, s) },
	} {
		r := start(t, 0)
		p, _ := r.pinned(n)
		other := start(t, 1)
		d, s := other.upload(make([]byte, n)), other.stream()
		copy(other, p, d, s)
		r.enter()
		r.must("cuMemFreeHost", p)
		other.enter()
		if e := lib.Call("cuStreamSynchronize", s); e != assertion {
			t.Errorf("%s: error %d", name, e)
		}
		r.found("host-access", "operation=copy-to-(device|host) device=1: the host freed pinned memory at 0x[0-9a-f]+ while the copy was under way")
	}
}
