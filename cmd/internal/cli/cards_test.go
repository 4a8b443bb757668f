//go:build cuda

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon/montest"
)

// TestCards: an uncorrected error of memory, a throttle and an Xid while a run goes on are of
// the device that has them, through the management library and the watch of the commands.
func TestCards(t *testing.T) {
	m, devices, begin, err := montest.Trouble()
	if err != nil {
		t.Fatal(err)
	}
	o := &Opened{devices: devices, watch: func(all []gpu.Info) (watcher, error) { return watchWith(m, all) }}
	stop := o.Watch()
	begin()
	got := stop()
	want := [][]string{{"ecc: 1 uncorrected ECC errors", "ecc: an uncorrected ECC error was reported"}, {"throttle: clocks were held down: hardware thermal slowdown", "xid: Xid 79 was reported"}, nil}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range got {
		slices.Sort(w.Findings)
		if !w.Monitored || !slices.Equal(w.Findings, want[i]) || !strings.Contains(w.Device, devices[i].UUID) {
			t.Errorf("%+v, want %q", w, want[i])
		}
	}
}
