package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNeedsAreReviewed: what kernels need is compared with the reviewed text, and what
// changed is named; a kernel that needs the same everywhere has one number.
func TestNeedsAreReviewed(t *testing.T) {
	needs := map[string][]string{"fill": {"8/0/0/0", "8/0/0/0"}, "swiglu": {"20/0/0/0", "22/0/0/0"}}
	kernels, columns := []string{"fill", "swiglu"}, []string{"12.9 sm_80", "12.9 sm_90"}
	file := filepath.Join(t.TempDir(), "resources.txt")
	if err := compareText(file, table(kernels, columns, needs), false); !os.IsNotExist(err) {
		t.Errorf("without a reviewed text: %v", err)
	}
	if err := compareText(file, table(kernels, columns, needs), true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "\nfill                     8/0/0/0\nswiglu                   20/0/0/0 22/0/0/0\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if err := compareText(file, table(kernels, columns, needs), false); err != nil {
		t.Error(err)
	}
	needs["swiglu"][1] = "22/8/8/0" // it spills
	err = compareText(file, table(kernels, columns, needs), false)
	if err == nil || !strings.HasSuffix(err.Error(), "reviewed:\n-swiglu                   20/0/0/0 22/0/0/0\n+swiglu                   20/0/0/0 22/8/8/0\n") {
		t.Errorf("one that spills: %v", err)
	}
}
