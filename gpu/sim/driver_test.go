//go:build sim

package sim_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// Results of the driver, as it numbers them.
const (
	success        = 0
	invalidValue   = 1
	outOfMemory    = 2
	invalidContext = 201
	invalidPTX     = 218
	invalidHandle  = 400
	notReady       = 600
	illegalAddress = 700
	timeout        = 702
	assertion      = 710
	misaligned     = 716
	launchFailed   = 719
	notSupported   = 801
)

var lib *harness.Lib

func TestMain(m *testing.M) {
	path := os.Getenv("LOCKSTEP_CUDA_SIM")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "libcuda-sim.so")
	}
	// Findings that are expected need not be printed.
	for _, v := range [][2]string{{"LOCKSTEP_SIM_QUIET", "1"}, {"LOCKSTEP_SIM_MEMORY", "64M"}, {"LOCKSTEP_SIM_DEVICES", "4"}} {
		if _, ok := os.LookupEnv(v[0]); !ok {
			os.Setenv(v[0], v[1])
		}
	}
	var err error
	if lib, err = harness.Open(path); err != nil {
		os.Stderr.WriteString(err.Error() + "\nmake build-sim builds it\n")
		os.Exit(1)
	}
	if r := lib.Call("cuInit", 0); r != success {
		fmt.Fprintf(os.Stderr, "cuInit: %d: %s\n", r, lib.Text("lockstep_simulator_refusal"))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// rig is one device in a test, whose context is new.
type rig struct {
	testing.TB
	device int
}

// start gives a device with a context that is current and of this test alone, on the one
// thread of the operating system that the test runs on.
func start(t testing.TB, device int) *rig {
	t.Helper()
	runtime.LockOSThread() // the current context is a thread's
	t.Cleanup(runtime.UnlockOSThread)
	r := &rig{t, device}
	r.must("cuDevicePrimaryCtxReset_v2", uint64(device))
	lib.Call("lockstep_simulator_forget_findings") // of what the test before left
	r.enter()
	t.Cleanup(func() {
		lib.Call("cuCtxSetCurrent", 0)
		lib.Call("cuDevicePrimaryCtxReset_v2", uint64(device))
	})
	return r
}

// enter makes the device's context current.
func (r *rig) enter() {
	r.Helper()
	r.must("cuCtxSetCurrent", r.out(func(p uint64) { r.must("cuDevicePrimaryCtxRetain", p, uint64(r.device)) }))
}

func (r *rig) must(name string, args ...uint64) {
	r.Helper()
	if got := lib.Call(name, args...); got != success {
		r.Fatalf("%s: error %d\n%s", name, got, findings())
	}
}

// want demands an error.
func (r *rig) want(code int, name string, args ...uint64) {
	r.Helper()
	if got := lib.Call(name, args...); got != code {
		r.Errorf("%s: %d, want %d\n%s", name, got, code, findings())
	}
}

// out gives what a call writes to a pointer.
func (r *rig) out(call func(p uint64)) uint64 {
	p, b := harness.Alloc(8)
	defer harness.Free(p)
	call(p)
	return binary.LittleEndian.Uint64(b)
}

func findings() string { return lib.Text("lockstep_simulator_findings") }

func cstring(s string) uint64 {
	p, b := harness.Alloc(len(s) + 1)
	copy(b, s)
	return p
}

// module loads a PTX text.
func (r *rig) module(text string) uint64 {
	r.Helper()
	m, log, code := load(text)
	if code != success {
		r.Fatalf("load: error %d: %s", code, log)
	}
	return m
}

// load loads a text and gives what the driver logs.
func load(text string) (module uint64, log string, code int) {
	image := cstring(text)
	defer harness.Free(image)
	buf, b := harness.Alloc(1024)
	defer harness.Free(buf)
	// CU_JIT_ERROR_LOG_BUFFER and its size.
	opts, ob := harness.Alloc(8)
	defer harness.Free(opts)
	binary.LittleEndian.PutUint32(ob, 5)
	binary.LittleEndian.PutUint32(ob[4:], 6)
	vals, vb := harness.Alloc(16)
	defer harness.Free(vals)
	binary.LittleEndian.PutUint64(vb, buf)
	binary.LittleEndian.PutUint64(vb[8:], 1024)
	out, outb := harness.Alloc(8)
	defer harness.Free(out)
	code = lib.Call("cuModuleLoadDataEx", out, image, 2, opts, vals)
	return binary.LittleEndian.Uint64(outb), strings.TrimRight(string(b), "\x00"), code
}

func (r *rig) function(module uint64, name string) uint64 {
	r.Helper()
	n := cstring(name)
	defer harness.Free(n)
	return r.out(func(p uint64) { r.must("cuModuleGetFunction", p, module, n) })
}

func (r *rig) alloc(n int) uint64 {
	r.Helper()
	return r.out(func(p uint64) { r.must("cuMemAlloc_v2", p, uint64(n)) })
}

// upload allocates and fills device memory.
func (r *rig) upload(b []byte) uint64 {
	r.Helper()
	d := r.alloc(max(len(b), 1))
	r.write(d, b)
	return d
}

func (r *rig) write(d uint64, b []byte) {
	r.Helper()
	p, h := harness.Alloc(len(b))
	defer harness.Free(p)
	copy(h, b)
	r.must("cuMemcpyHtoD_v2", d, p, uint64(len(b)))
}

func (r *rig) download(d uint64, n int) []byte {
	r.Helper()
	p, h := harness.Alloc(n)
	defer harness.Free(p)
	r.must("cuMemcpyDtoH_v2", p, d, uint64(n))
	return append([]byte(nil), h...)
}

// dim is up to three numbers.
type dim []int

func (d dim) at(i int) uint64 {
	if i < len(d) {
		return uint64(d[i])
	}
	return 1
}

// launch queues a kernel; arguments are uint64 (pointers), uint32, int, int32 or float32.
func (r *rig) launch(f uint64, grid, block dim, shared int, stream uint64, args ...any) int {
	var packed []byte
	for _, a := range args {
		var b []byte
		switch v := a.(type) {
		case uint64:
			b = binary.LittleEndian.AppendUint64(nil, v)
		case int:
			b = binary.LittleEndian.AppendUint32(nil, uint32(v))
		case int32:
			b = binary.LittleEndian.AppendUint32(nil, uint32(v))
		case uint32:
			b = binary.LittleEndian.AppendUint32(nil, v)
		case float32:
			b = binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
		default:
			r.Fatalf("argument %T", a)
		}
		for len(packed)%len(b) != 0 {
			packed = append(packed, 0)
		}
		packed = append(packed, b...)
	}
	p, b := harness.Alloc(len(packed) + 8)
	defer harness.Free(p)
	copy(b, packed)
	binary.LittleEndian.PutUint64(b[len(packed):], uint64(len(packed)))
	extra, eb := harness.Alloc(40)
	defer harness.Free(extra)
	for i, v := range []uint64{1, p, 2, p + uint64(len(packed)), 0} {
		binary.LittleEndian.PutUint64(eb[8*i:], v)
	}
	return lib.Call("cuLaunchKernel", f, grid.at(0), grid.at(1), grid.at(2), block.at(0), block.at(1), block.at(2), uint64(shared), stream, 0, extra)
}

// run launches on the default stream and waits: it gives the error of either.
func (r *rig) run(f uint64, grid, block dim, shared int, args ...any) int {
	if e := r.launch(f, grid, block, shared, 0, args...); e != success {
		return e
	}
	return lib.Call("cuCtxSynchronize")
}

// found demands one finding, of a class, whose text matches.
func (r *rig) found(class, pattern string) {
	r.Helper()
	got := strings.Split(strings.TrimSpace(findings()), "\n")
	if len(got) != 1 || !strings.HasPrefix(got[0], class+" ") || !regexp.MustCompile(pattern).MatchString(got[0]) {
		r.Errorf("findings %q, want one of class %s that matches %s", got, class, pattern)
	}
}

func (r *rig) clean() {
	r.Helper()
	if f := findings(); f != "" {
		r.Errorf("findings, want none: %s", f)
	}
}

func words(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func toWords(b []byte) []uint32 {
	v := make([]uint32, len(b)/4)
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return v
}

func toFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i, w := range toWords(b) {
		v[i] = math.Float32frombits(w)
	}
	return v
}

func ptx(t testing.TB, name string) string {
	b, err := os.ReadFile(filepath.Join("testdata", name+".ptx"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
