package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEmulator(t *testing.T) {
	has := func(names ...string) func(string) (string, error) {
		return func(s string) (string, error) {
			if slices.Contains(names, s) {
				return "/bin/" + s, nil
			}
			return "", errors.New("not found")
		}
	}
	for _, c := range []struct {
		arch, host string
		find       func(string) (string, error)
		want, says string
	}{
		{"arm64", "arm64", has(), "", ""},
		{"arm64", "amd64", has("qemu-aarch64"), "/bin/qemu-aarch64", ""},
		{"arm64", "amd64", has("qemu-aarch64-static"), "/bin/qemu-aarch64-static", ""},
		{"amd64", "arm64", has("qemu-x86_64", "qemu-aarch64"), "/bin/qemu-x86_64", ""},
		{"arm64", "amd64", has("qemu-x86_64"), "", "apt-get install qemu-user"},
		{"mips", "amd64", has("qemu-mips"), "", `"mips"`},
	} {
		got, err := emulator(c.arch, c.host, c.find)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s on %s: %v, %v; want %q, error with %q", c.arch, c.host, got, err, c.want, c.says)
		}
	}
}

func TestRuns(t *testing.T) {
	if got, want := runs(true, []string{"avx2", "ref"}), []run{{"avx2", 1}, {"avx2", 2}, {"ref", 1}, {"ref", 2}}; !slices.Equal(got, want) {
		t.Errorf("native: %v, want %v", got, want)
	}
	if got, want := runs(false, []string{"avx2", "ref"}), []run{{"", 1}, {"", 2}}; !slices.Equal(got, want) {
		t.Errorf("emulated: %v, want %v", got, want)
	}
}

func TestLast(t *testing.T) {
	if got, err := last("step 1\nfingerprint weights=1 loss=2\n"); err != nil || got != "weights=1 loss=2" {
		t.Errorf("%q, %v", got, err)
	}
	for _, s := range []string{"", "fingerprint x\nstep 2"} {
		if _, err := last(s); err == nil {
			t.Errorf("%q has a fingerprint", s)
		}
	}
}

// TestWrong: a fingerprint that differs is counted, and one run is enough to see
// that the goldens are those of the configurations.
func TestWrong(t *testing.T) {
	var b bytes.Buffer
	if !judge(&b, "x", "a", "a") || judge(&b, "y", "a", "b") || b.String() != "x ok\ny wrong\n  got  a\n  want b\n" {
		t.Errorf("%q", b.String())
	}
	all, err := fixtures()
	if err != nil || len(all) != 2 || all[0].want == all[1].want {
		t.Errorf("fixtures %v, %v", all, err)
	}
}
