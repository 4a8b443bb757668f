package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon"
)

// opened is a backend on n devices, of which those from sim on are simulated.
func opened(n, sim int) *Opened {
	o := &Opened{}
	for i := range n {
		o.devices = append(o.devices, gpu.Info{Index: i, Name: "H100", UUID: fmt.Sprintf("GPU-%d", i), PCI: fmt.Sprintf("0000:%02d:00.0", i), Simulated: i >= sim})
	}
	return o
}

// TestSeating: every device of a host is of one of its processes, each of which has as many
// as PerProcess says at most, and the ranks of a process take its own in turn.
func TestSeating(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for here := 1; here <= 10; here++ {
			var all []int
			for local := range here {
				o := opened(n, n)
				o.Sit(func() Seating { return Seating{here, local, here} })
				mine := o.mine()
				if len(mine) == 0 || len(mine) > o.Have() || o.Have() != o.PerProcess(here) {
					t.Errorf("%d devices, process %d of %d: %v, at most %d", n, local, here, mine, o.Have())
				}
				for i := range 2 * len(mine) {
					if got, want := o.device(local+i*here), mine[i%len(mine)]; got != want {
						t.Errorf("%d devices: rank %d of %d processes is on %d, want %d", n, local+i*here, here, got, want)
					}
				}
				all = append(all, mine...)
			}
			slices.Sort(all)
			if got := slices.Compact(slices.Clone(all)); len(got) != n && here <= n || here <= n && len(all) != n || len(got) != min(n, here) && here > n {
				t.Errorf("%d devices, %d processes: %v", n, here, all)
			}
		}
	}
	o := opened(3, 3)
	for rank, want := range []int{0, 1, 2, 0, 1} {
		if got := o.device(rank); got != want {
			t.Errorf("alone, rank %d is on %d, want %d", rank, got, want)
		}
	}
	if o := opened(0, 0); o.Have() != 0 || o.mine() != nil || len(o.Watch()()) != 0 {
		t.Error("a processor has devices")
	}
}

// seen is a watcher that has seen something.
type seen struct {
	states []mon.State
	found  []mon.Finding
}

func (s seen) Stop() ([]mon.State, []mon.Finding) { return s.states, s.found }

// TestWatched: each device of this process is said of: what was found, what it does not
// tell, or why nobody looked; and of nobody else's.
func TestWatched(t *testing.T) {
	card := func(i int, untold ...string) mon.State {
		s := mon.State{PCI: fmt.Sprintf("0000:%02d:00.0", i), Untold: map[string]string{}}
		for _, what := range untold {
			s.Untold[what] = "not supported"
		}
		return s
	}
	for name, c := range map[string]struct {
		devices, sim int
		saw          seen
		err          error
		want         []string
	}{
		"well":       {2, 2, seen{states: []mon.State{card(0), card(1)}}, nil, []string{"device 0 true  []", "device 1 true  []"}},
		"ill":        {2, 2, seen{[]mon.State{card(0), card(1)}, []mon.Finding{{Kind: "xid", PCI: "0000:01:00.0", What: "Xid 79"}}}, nil, []string{"device 0 true  []", "device 1 true  [xid: Xid 79]"}},
		"untold":     {1, 1, seen{states: []mon.State{card(0, "events", "ECC")}}, nil, []string{"device 0 true it does not tell ECC, events []"}},
		"no library": {1, 1, seen{}, errors.New("no libnvidia-ml"), []string{"device 0 false no libnvidia-ml []"}},
		"simulated":  {2, 0, seen{}, errors.New("asked"), []string{"simulated device 0 false a simulated device has no management library []", "simulated device 1 false a simulated"}},
		"nameless":   {1, 1, seen{[]mon.State{card(0)}, []mon.Finding{{Kind: "xid", PCI: "unknown", What: "Xid 13"}}}, nil, []string{"device 0 true  []", "a device that is not named (unknown) true  [xid: Xid 13]"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := opened(c.devices, c.sim)
			o.watch = func(all []gpu.Info) (watcher, error) {
				if c.err != nil {
					return nil, c.err
				}
				if len(all) != c.sim {
					t.Errorf("%d devices are looked at", len(all))
				}
				return c.saw, nil
			}
			got := o.Watch()()
			if len(got) != len(c.want) {
				t.Fatalf("%+v", got)
			}
			for i, w := range got {
				device, _, _ := strings.Cut(w.Device, " (H100")
				if s := fmt.Sprintf("%s %v %s %v", device, w.Monitored, w.Not, w.Findings); !strings.HasPrefix(s, c.want[i]) || w.Host == "" {
					t.Errorf("%q on %q, want %q", s, w.Host, c.want[i])
				}
			}
		})
	}
	o := opened(4, 4)
	o.Sit(func() Seating { return Seating{2, 1, 2} })
	o.watch = func(all []gpu.Info) (watcher, error) {
		if len(all) != 2 || all[0].Index != 1 || all[1].Index != 3 {
			t.Errorf("%+v", all)
		}
		return seen{}, nil
	}
	if got := o.Watch()(); len(got) != 2 || !strings.Contains(got[0].Device, "GPU-1, 0000:01:00.0") {
		t.Errorf("%+v", got)
	}
}
