// Package mon reads what NVIDIA's management library (NVML) tells of devices: identity,
// clocks, temperature, and counters of errors that a computation need not notice. Watch reads
// before and after, and looks meanwhile; what must not happen to a device is a Finding.
//
// States, and their comparison, are plain data and there in every build. The library is
// read where the build tag is cuda.
package mon

import (
	"fmt"
	"slices"
)

// State is what the library told of a device at one time.
type State struct {
	Index  int    `json:"index"` // as CUDA counts
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	PCI    string `json:"pci"`
	Driver string `json:"driver"` // the version of the kernel driver: "550.54.15"

	ClockSM      uint32   `json:"clock_sm_mhz"`
	ClockMemory  uint32   `json:"clock_memory_mhz"`
	Power        uint32   `json:"power_milliwatts"`
	Temperature  uint32   `json:"temperature_celsius"`
	Throttled    Throttle `json:"throttled"` // why the clocks were held down, at any time since the state before
	MIG          bool     `json:"mig"`       // the card is divided
	ECC          bool     `json:"ecc"`
	Corrected    uint64   `json:"ecc_corrected"` // errors since the driver was loaded
	Uncorrected  uint64   `json:"ecc_uncorrected"`
	RowsRemapped Rows     `json:"rows_remapped"`
	Links        []Link   `json:"nvlinks,omitempty"`
	Others       []uint32 `json:"other_processes,omitempty"` // that compute on the device, by their ids

	// Untold says what the device did not tell, and why.
	Untold map[string]string `json:"untold,omitempty"`
}

// Rows are rows of memory that were replaced by spare ones because of errors.
type Rows struct {
	Corrected   int  `json:"corrected"` // because of corrected errors
	Uncorrected int  `json:"uncorrected"`
	Pending     bool `json:"pending"` // more will be when the device is reset
	Failed      bool `json:"failed"`  // one could not be
}

// Link is an NVLink, and how often each kind of error was counted on it.
type Link struct {
	Index    int    `json:"index"`
	Up       bool   `json:"up"`
	Replay   uint64 `json:"replay"`
	Recovery uint64 `json:"recovery"`
	CRCFlit  uint64 `json:"crc_flit"`
	CRCData  uint64 `json:"crc_data"`
}

// Throttle is a set of reasons for which clocks are lower than they could be, as NVML
// numbers them.
type Throttle uint64

// reasons are those that NVML has. Some are how a device is run, some say that power,
// cooling or the board is not as it should be.
var reasons = []struct {
	bit   Throttle
	name  string
	fault bool
}{
	{1, "idle", false},
	{2, "clocks as set", false},
	{4, "power cap", false}, // a card under full load stays within its power by this
	{8, "hardware slowdown", true},
	{16, "sync boost", false},
	{32, "software thermal slowdown", true},
	{64, "hardware thermal slowdown", true},
	{128, "hardware power brake", true},
	{256, "display clocks", false},
	{512, "board limit", true},
	{1024, "reliability", true},
}

// Names lists the reasons; with faults alone, those that are one.
func (t Throttle) Names(faults bool) (out []string) {
	for _, r := range reasons {
		if t&r.bit != 0 && (r.fault || !faults) {
			out = append(out, r.name)
		}
		t &^= r.bit
	}
	if t != 0 {
		out = append(out, fmt.Sprintf("reason %#x", uint64(t)))
	}
	return out
}

// Event is what a device reported by itself.
type Event struct {
	PCI string `json:"pci"`
	XID uint64 `json:"xid,omitempty"` // the number of the error, as NVIDIA lists them
	ECC bool   `json:"ecc,omitempty"` // an uncorrected error of memory
}

// Finding is something that must not happen to a device, whether or not what it computed is
// right.
type Finding struct {
	Kind  string `json:"kind"` // ecc, rows, xid, nvlink, throttle, lost
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	PCI   string `json:"pci"`
	What  string `json:"what"`
}

// String is the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("device %d (%s, %s): %s: %s", f.Index, f.UUID, f.PCI, f.Kind, f.What)
}

// Compare finds what happened between two readings of the same devices, and in the events
// meanwhile. The order is that of the devices, then of the kinds above.
func Compare(before, after []State, events []Event) (out []Finding) {
	known := map[string]bool{}
	for _, b := range before {
		known[b.PCI] = true
		c := comparison{of: b}
		i := slices.IndexFunc(after, func(a State) bool { return a.PCI == b.PCI })
		if i >= 0 {
			c.counters(b, after[i])
		} else {
			c.add("lost", "it is not there any more")
		}
		for _, e := range events {
			if e.PCI == b.PCI {
				c.event(e)
			}
		}
		out = append(out, c.found...)
	}
	for _, e := range events {
		if !known[e.PCI] {
			c := comparison{of: State{Index: -1, PCI: e.PCI, UUID: "unknown"}}
			c.event(e)
			out = append(out, c.found...)
		}
	}
	return out
}

// comparison gathers what is found of one device.
type comparison struct {
	of    State
	found []Finding
}

func (c *comparison) add(kind, format string, args ...any) {
	c.found = append(c.found, Finding{kind, c.of.Index, c.of.UUID, c.of.PCI, fmt.Sprintf(format, args...)})
}

// more reports a counter that grew. One that fell was set to 0 meanwhile, and then grew.
func (c *comparison) more(kind, what string, before, after uint64) {
	if after < before {
		before = 0
	}
	if after > before {
		c.add(kind, "%d %s", after-before, what)
	}
}

func (c *comparison) counters(b, a State) {
	c.more("ecc", "uncorrected ECC errors", b.Uncorrected, a.Uncorrected)
	c.more("rows", "rows of memory remapped because of uncorrected errors", uint64(b.RowsRemapped.Uncorrected), uint64(a.RowsRemapped.Uncorrected))
	if a.RowsRemapped.Pending {
		c.add("rows", "a row of memory waits for a reset of the device to be remapped")
	}
	if a.RowsRemapped.Failed {
		c.add("rows", "a row of memory could not be remapped")
	}
	for _, l := range b.Links {
		c.link(l, a.Links)
	}
	for _, name := range (b.Throttled | a.Throttled).Names(true) {
		c.add("throttle", "clocks were held down: %s", name)
	}
	for _, what := range sorted(a.Untold) {
		if _, ok := b.Untold[what]; !ok {
			c.add("lost", "it does not tell %s any more: %s", what, a.Untold[what])
		}
	}
}

func (c *comparison) link(b Link, after []Link) {
	i := slices.IndexFunc(after, func(a Link) bool { return a.Index == b.Index })
	if i < 0 || b.Up && !after[i].Up {
		c.add("nvlink", "link %d went down", b.Index)
	}
	if i < 0 || !b.Up || !after[i].Up {
		return // a link that is down has no counters
	}
	a := after[i]
	for _, k := range []struct {
		name          string
		before, after uint64
	}{{"replay", b.Replay, a.Replay}, {"recovery", b.Recovery, a.Recovery}, {"CRC flit", b.CRCFlit, a.CRCFlit}, {"CRC data", b.CRCData, a.CRCData}} {
		c.more("nvlink", fmt.Sprintf("%s errors on link %d", k.name, b.Index), k.before, k.after)
	}
}

func (c *comparison) event(e Event) {
	if e.ECC {
		c.add("ecc", "an uncorrected ECC error was reported")
	} else {
		c.add("xid", "Xid %d was reported", e.XID)
	}
}

func sorted(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
