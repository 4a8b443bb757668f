package drill

import (
	"fmt"
	"testing"
)

// A level has every operation of the levels below it, with whatever input.
func TestLevelsAreNested(t *testing.T) {
	for _, world := range []int{2, 3, 5, 9, 25} {
		for level := 1; level <= 2; level++ {
			for _, rank := range []int{0, world - 1} {
				have := map[string]bool{}
				for _, r := range Plan(world, rank, 1, level) {
					have[unseeded(r)] = true
				}
				for _, r := range Plan(world, rank, 1, level-1) {
					if !have[unseeded(r)] {
						t.Fatalf("world of %d, level %d lacks %s", world, level, unseeded(r))
					}
				}
			}
		}
	}
}

// unseeded is what an operation is, without its input and its turn.
func unseeded(r Record) string {
	r.Seed, r.Iteration = 0, 0
	return fmt.Sprintf("%+v", r)
}
