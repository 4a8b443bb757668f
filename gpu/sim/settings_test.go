//go:build sim

package sim_test

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// begun is what this program says of a simulator that starts with variables.
func begun(t *testing.T, limit string, variables ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", limit+` exec "$0" -test.run '^$'`, os.Args[0])
	cmd.Env = append(os.Environ(), variables...)
	out, _ := cmd.CombinedOutput() // what it says has whether it failed
	return strings.TrimSpace(string(out))
}

// TestSettings: each variable is what it may be, or nothing starts, and it is said which is
// not.
func TestSettings(t *testing.T) {
	const (
		sizes   = "bytes from 1M to 64G, with K, M or G or without"
		threads = "a number from 1 to 256"
		devices = "a number from 1 to 16"
		budget  = "a number from 1 on"
		isa     = "generic, avx2 or avx512"
	)
	for _, c := range []struct{ name, value, rule string }{
		{"MEMORY", "x", sizes}, {"MEMORY", "-1", sizes}, {"MEMORY", "+1G", sizes}, {"MEMORY", " 1G", sizes}, {"MEMORY", "1G ", sizes}, {"MEMORY", "0", sizes},
		{"MEMORY", "1023K", sizes}, {"MEMORY", "65G", sizes}, {"MEMORY", "1KM", sizes}, {"MEMORY", "1T", sizes}, {"MEMORY", "G", sizes}, {"MEMORY", "0x10000000", sizes},
		{"MEMORY", "99999999999999999999", sizes}, {"MEMORY", "17179869185G", sizes}, {"MEMORY", "1.5G", sizes},
		{"THREADS", "x", threads}, {"THREADS", "-1", threads}, {"THREADS", "0", threads}, {"THREADS", "257", threads}, {"THREADS", "1K", threads}, {"THREADS", "4294967297", threads},
		{"DEVICES", "0", devices}, {"DEVICES", "17", devices}, {"BUDGET", "0", budget}, {"BUDGET", "18446744073709551616", budget},
		{"ISA", "sse", isa}, {"ISA", "AVX2", isa}, {"ISA", "avx", isa}, {"CHECKS", "off", "all or none"}, {"QUIET", "yes", "0 or 1"},
	} {
		want := "cuInit: 1: LOCKSTEP_SIM_" + c.name + "=\"" + c.value + "\": it must be " + c.rule + ", or not be set"
		if got := begun(t, "", "LOCKSTEP_SIM_"+c.name+"="+c.value); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const known = "LOCKSTEP_SIM_DEVICES LOCKSTEP_SIM_MEMORY LOCKSTEP_SIM_THREADS LOCKSTEP_SIM_CHECKS LOCKSTEP_SIM_ISA LOCKSTEP_SIM_BUDGET LOCKSTEP_SIM_QUIET"
	if got, want := begun(t, "", "LOCKSTEP_SIM_THREAD=1"), "cuInit: 1: LOCKSTEP_SIM_THREAD: no such variable; known are "+known; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, v := range []string{"MEMORY=1M", "MEMORY=64G", "MEMORY=1048576", "MEMORY=", "THREADS=1", "THREADS=256", "THREADS=", "DEVICES=16", "BUDGET=18446744073709551615", "ISA=", "CHECKS=all", "QUIET=0"} {
		if got := begun(t, "", "LOCKSTEP_SIM_"+v); !strings.Contains(got, "no tests to run") {
			t.Errorf("LOCKSTEP_SIM_%s: %s", v, got)
		}
	}
}

// TestUnchecked: without checks nothing is found, and what was not written is no number.
func TestUnchecked(t *testing.T) {
	if os.Getenv("LOCKSTEP_SIM_CHECKS") != "none" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestUnchecked$", "-test.v")
		cmd.Env = append(os.Environ(), "LOCKSTEP_SIM_CHECKS=none")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestUnchecked") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := start(t, 0)
	x, y, s := r.alloc(256), r.alloc(256), r.stream()
	for i, v := range r.download(x, 256) {
		if v != 0xff {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	r.must("cuMemsetD8_v2", x, 0, 256)
	if e := r.run(r.function(r.module(ptx(t, "bugs")), "race_barrier"), dim{1}, dim{64}, 0, x, y, 64); e != success {
		t.Errorf("a race: error %d", e)
	}
	p, b := r.pinned(256)
	r.must("cuMemcpyHtoDAsync_v2", x, p, 256, s)
	b[9] = 9
	r.must("cuStreamSynchronize", s)
	if v := r.download(x, 256)[9]; v != 9 {
		t.Errorf("copied from pinned memory that was changed: %d", v)
	}
	r.clean()
}

// TestAddressSpace: where a device's address space cannot be reserved, it is said what was
// asked for and what the system answered.
func TestAddressSpace(t *testing.T) {
	got := begun(t, "ulimit -v 16000000;", "LOCKSTEP_SIM_MEMORY=64G")
	want := "cuInit: 2: device 0: address space for 68719476736 bytes of memory and what is known of them, 687530311680 bytes in all, could not be reserved: " +
		"mmap of 137506062336 bytes: Cannot allocate memory; LOCKSTEP_SIM_MEMORY makes devices smaller, and ulimit -v says what a process may have"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestScarceMemory: where the host has no memory for what a launch needs, or for threads
// to help with it, there is an error or there are fewer threads.
func TestScarceMemory(t *testing.T) {
	if os.Getenv("SIM_TEST_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestScarceMemory$", "-test.v")
		cmd.Env = append(os.Environ(), "SIM_TEST_CHILD=1", "LOCKSTEP_SIM_THREADS=8", "LOCKSTEP_SIM_MEMORY=64M")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestScarceMemory") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := start(t, 0)
	const local = 500 << 10 // bytes of a thread: 512 MB of a block
	f := r.function(r.module(header+".visible .entry k(.param .u64 y) {\n.reg .b64 %d<2>; .local .b8 x["+strconv.Itoa(local)+"]; mov.u64 %d1, x; st.local.u32 [%d1], 1;\nret;\n}\n"), "k")
	g := r.function(r.module(ptx(t, "correct")), "histogram")
	in, out := r.upload(make([]byte, 4096)), r.upload(make([]byte, 32))
	args := []any{in, out, 1024}
	const large = 40 << 20
	d, s := r.alloc(large), r.stream()
	pinned, _ := r.pinned(large)
	pageable, _ := harness.Alloc(large)
	limitMemory(t, 6<<20) // less than the stack of a thread
	if e := r.run(g, dim{5}, dim{96}, 0, args...); e != success {
		t.Errorf("without memory for threads: error %d", e)
	}
	// What a copy keeps to see that the host leaves its memory alone.
	r.want(outOfMemory, "cuMemcpyHtoDAsync_v2", d, pinned, large, s)
	r.want(outOfMemory, "cuMemcpyHtoDAsync_v2", d, pageable, large, s)
	r.want(outOfMemory, "cuMemcpyDtoHAsync_v2", pinned, d, large, s)
	limitMemory(t, 128<<20)
	if e := r.run(f, dim{1}, dim{1024}, 0, out); e != launchFailed {
		t.Errorf("without memory for a block: error %d, want %d", e, launchFailed)
	}
	r.found("host-memory", `kernel=k device=0: the host does not give [0-9]{9} bytes for what a block needs$`)
}

// limitMemory lets this process have so many bytes of addresses more than it has.
func limitMemory(t *testing.T, more uint64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	l := syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + more, Max: math.MaxUint64}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &l); err != nil {
		t.Fatal(err)
	}
}
