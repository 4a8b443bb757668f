package race

import (
	"slices"
	"testing"
)

// Nothing is left out without the detector; under it the first case and others
// stay.
func TestSome(t *testing.T) {
	want := []int{0, 1, 2, 3, 4, 5, 6}
	if Enabled {
		want = []int{0, 3, 6}
	}
	if got := Some(3, []int{0, 1, 2, 3, 4, 5, 6}); !slices.Equal(got, want) {
		t.Errorf("some of seven are %v, want %v", got, want)
	}
	if got := Some(3, []int(nil)); len(got) != 0 {
		t.Errorf("some of none are %v", got)
	}
}
