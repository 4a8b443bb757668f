package suite

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// patience is how often parts on which nothing ran are given another chance: where blocks
// run is the device's choice.
const patience = 8

// each has every part of a device compute the same sum, and compares.
func (s surveying) each(l kernels.Located) (trace.Event, error) {
	e := trace.Event{Kind: trace.KindDevice, What: trace.Each, Unit: strconv.Itoa(l.Parts())}
	ran, wrong := map[uint32]bool{}, map[uint32][2]uint32{}
	for i := 0; i < s.Repeats || i < patience && len(ran) < l.Parts(); i++ {
		seed := uint32(s.Seed) + uint32(i) // another sum each time
		parts, err := l.EachPart(seed)
		if err != nil {
			return e, err
		}
		want := ref.PartSum(seed)
		for _, p := range parts {
			if ran[p.ID] = true; p.Sum != want {
				wrong[p.ID] = [2]uint32{p.Sum, want}
			}
		}
	}
	if e.Count = int64(len(ran)); len(wrong) == 0 {
		return e, nil
	}
	ids := slices.Sorted(maps.Keys(wrong))
	e.Index, e.Got, e.Want = int64(ids[0]), wrong[ids[0]][0], wrong[ids[0]][1]
	e.Text = fmt.Sprintf("%d of the %d multiprocessors that computed give a wrong sum, by number: %v", len(ids), len(ran), ids[:min(len(ids), mostNamed)])
	return e, nil
}

// mostNamed is how many wrong parts are named at most.
const mostNamed = 8
