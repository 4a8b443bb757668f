package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What is started bound is so from its beginning, and this process is where it was.
func TestBound(t *testing.T) {
	all := processors()
	if len(all) == 0 {
		t.Fatal("this process may use no processor")
	}
	for rank, on := range all {
		p := &place{rank: rank, on: apart(len(all))}
		status := exec.Command("cat", "/proc/self/status")
		var said strings.Builder
		status.Stdout = &said
		if err := p.bound(status.Start); err != nil {
			t.Fatal(err)
		}
		if err := status.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", on); !strings.Contains(said.String(), want) {
			t.Errorf("rank %d is not on processor %d:\n%s", rank, on, said.String())
		}
	}
	if got := processors(); !slices.Equal(got, all) {
		t.Errorf("this process may use %v, and before %v", got, all)
	}
	if on := apart(len(all) + 1); on != "" {
		t.Errorf("%d ranks are on processors %q, and there are %d", len(all)+1, on, len(all))
	}
}
