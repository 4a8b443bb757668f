package turns

import (
	"os"
	"testing"
)

// What descendants use is this process's, and nothing else is.
func TestOwn(t *testing.T) {
	parents := map[int]int{1: 0, 10: 1, 20: 10, 21: 10, 30: 20, 40: 1, 50: 99}
	used := map[int]int{1: 1, 10: 2, 20: 4, 21: 8, 30: 16, 40: 32, 50: 64}
	for self, want := range map[int]int{10: 30, 20: 20, 30: 16, 40: 32, 77: 0} {
		if got := own(used, parents, self); got != want {
			t.Errorf("%d and its own have used %d, want %d", self, got, want)
		}
	}
}

// The process that runs this is seen, and its parent is who the system says.
func TestProcesses(t *testing.T) {
	used, parents := processes()
	if _, there := used[os.Getpid()]; !there || parents[os.Getpid()] != os.Getppid() {
		t.Errorf("%d is not among the processes, or not a child of %d: %v", os.Getpid(), os.Getppid(), parents)
	}
	share, err := Others()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := share(); err != nil || got < 0 || got > 1 {
		t.Errorf("others have %v, %v", got, err)
	}
}
