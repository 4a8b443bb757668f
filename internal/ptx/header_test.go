//go:build ptx

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeaderThatDiffers: a constant, the size of a type and the parameters of a function
// that are not the other header's are seen, and nothing else is.
func TestHeaderThatDiffers(t *testing.T) {
	atRoot(t)
	text, err := os.ReadFile(ourHeader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"MULTIPROCESSOR_COUNT = 16", "MULTIPROCESSOR_COUNT = 17", `says "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT 17", NVIDIA's "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT 16"`},
		{"struct CUuuid_st { char bytes[16]; }", "struct CUuuid_st { char bytes[20]; }", `says "sizeof CUuuid 20", NVIDIA's "sizeof CUuuid 16"`},
		{"cuDeviceGetCount(int *count)", "cuDeviceGetCount(unsigned *count)", "cuDeviceGetCount"},
	} {
		if !strings.Contains(string(text), c.old) {
			t.Fatalf("the header has no %q", c.old)
		}
		file := filepath.Join(t.TempDir(), "cuda.h")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		err := compareHeader(file, ourHeader)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in place of %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}
