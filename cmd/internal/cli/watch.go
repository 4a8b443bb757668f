package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon"
	"github.com/lockstep-ml/lockstep/kernels"
)

// watcher looks at devices; Stop says how they are in the end, and what must not have
// happened.
type watcher interface {
	Stop() ([]mon.State, []mon.Finding)
}

// Watched is what was seen of a device while ranks computed on it.
type Watched struct {
	Host   string
	Device string // in words
	// Not says why nobody looked at the device, or what it does not tell; Monitored
	// whether somebody looked.
	Not       string
	Monitored bool
	Findings  []string // what happened that must not
}

// Watch begins to look at the devices of this process. What it returns ends that and says
// what was seen; of a backend without devices, nothing.
func (o *Opened) Watch() (stop func() []Watched) {
	var all []gpu.Info
	for _, i := range o.mine() {
		all = append(all, o.devices[i])
	}
	host, _ := os.Hostname() // unknown is empty
	out := make([]Watched, len(all))
	var real []gpu.Info
	for i, d := range all {
		out[i] = Watched{Host: host, Device: named(d)}
		if d.Simulated {
			out[i].Not = "a simulated device has no management library"
			continue
		}
		real = append(real, d)
	}
	var w watcher
	var err error
	if len(real) > 0 {
		w, err = o.watch(real)
	}
	return func() []Watched {
		var states []mon.State
		var found []mon.Finding
		if w != nil {
			states, found = w.Stop()
		}
		for i, d := range all {
			switch {
			case d.Simulated:
			case err != nil:
				out[i].Not = err.Error()
			default:
				out[i].saw(d, states, found)
			}
		}
		return append(out, unknown(host, all, found)...)
	}
}

// named is a device in words, as backends on it say.
func named(d gpu.Info) string {
	return kernels.Device{Index: d.Index, Name: d.Name, UUID: d.UUID, PCI: d.PCI, Simulated: d.Simulated}.String()
}

// saw takes over what was seen of a device.
func (w *Watched) saw(d gpu.Info, states []mon.State, found []mon.Finding) {
	w.Monitored = true
	for _, f := range found {
		if f.PCI == d.PCI {
			w.Findings = append(w.Findings, f.Kind+": "+f.What)
		}
	}
	i := slices.IndexFunc(states, func(s mon.State) bool { return s.PCI == d.PCI })
	if i < 0 {
		return // that it is lost is a finding
	}
	if untold := slices.Sorted(maps.Keys(states[i].Untold)); len(untold) > 0 {
		w.Not = "it does not tell " + strings.Join(untold, ", ")
	}
}

// unknown is what was found of none of the devices: an event that names no card is one of
// some card.
func unknown(host string, all []gpu.Info, found []mon.Finding) (out []Watched) {
	for _, f := range found {
		if !slices.ContainsFunc(all, func(d gpu.Info) bool { return d.PCI == f.PCI }) {
			out = append(out, Watched{Host: host, Device: fmt.Sprintf("a device that is not named (%s)", f.PCI), Monitored: true, Findings: []string{f.Kind + ": " + f.What}})
		}
	}
	return out
}
