//go:build sim

package sim_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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
	for _, v := range []string{"MEMORY=1M", "MEMORY=64G", "MEMORY=1048576", "MEMORY=", "THREADS=1", "THREADS=256", "THREADS=", "DEVICES=16", "BUDGET=18446744073709551615", "ISA=", "CHECKS=all", "QUIET=0"} {
		if got := begun(t, "", "LOCKSTEP_SIM_"+v); !strings.Contains(got, "no tests to run") {
			t.Errorf("LOCKSTEP_SIM_%s: %s", v, got)
		}
	}
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
