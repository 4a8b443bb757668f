package mon

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCompare: each way in which a device can go wrong is found, and nothing is where none
// does.
func TestCompare(t *testing.T) {
	healthy := func() State {
		return State{Index: 1, UUID: "GPU-1", PCI: "0000:1b:00.0", ECC: true, Corrected: 5, Uncorrected: 2, Throttled: 1 | 2 | 4, RowsRemapped: Rows{Corrected: 1, Uncorrected: 1},
			Links: []Link{{Index: 0, Up: true, Replay: 7, CRCFlit: 3}, {Index: 3}}, Untold: map[string]string{"power": "not supported"}}
	}
	for _, c := range []struct {
		name   string
		change func(b, a *State)
		events []Event
		want   string // kinds and words, one line each
	}{
		{"nothing", func(b, a *State) {}, nil, ""},
		{"work", func(b, a *State) {
			a.Corrected, a.Temperature, a.ClockSM, a.Power, a.Others = 900, 80, 1500, 700000, []uint32{7}
		}, nil, ""},
		{"reasons that are no fault", func(b, a *State) { b.Throttled, a.Throttled = 0, 1|2|4|16|256 }, nil, ""},
		{"a new link", func(b, a *State) { a.Links = append(a.Links, Link{Index: 5, Up: true, Replay: 9}) }, nil, ""},
		{"a link that came up", func(b, a *State) { a.Links[1] = Link{Index: 3, Up: true, Replay: 9} }, nil, ""},

		{"uncorrected", func(b, a *State) { a.Uncorrected = 4 }, nil, "ecc: 2 uncorrected ECC errors"},
		{"uncorrected after a reset", func(b, a *State) { a.Uncorrected = 1 }, nil, "ecc: 1 uncorrected ECC errors"},
		{"reset", func(b, a *State) { a.Uncorrected = 0 }, nil, ""},
		{"rows", func(b, a *State) { a.RowsRemapped.Uncorrected = 2 }, nil, "rows: 1 rows of memory remapped because of uncorrected errors"},
		{"pending", func(b, a *State) { a.RowsRemapped.Pending = true }, nil, "rows: a row of memory waits for a reset"},
		{"pending from before", func(b, a *State) { b.RowsRemapped.Pending, a.RowsRemapped.Pending = true, true }, nil, "rows: a row of memory waits for a reset"},
		{"no spare row any more", func(b, a *State) { a.RowsRemapped.Failed = true }, nil, "rows: a row of memory could not be remapped"},
		{"pending, and no spare row", func(b, a *State) { a.RowsRemapped.Pending, a.RowsRemapped.Failed = true, true }, nil, "rows: a row of memory waits for a reset\nrows: a row of memory could not be remapped"},
		{"reset, and remapped", func(b, a *State) { b.RowsRemapped.Pending, b.RowsRemapped.Failed = true, true }, nil, ""},
		{"no spare row", func(b, a *State) { b.RowsRemapped.Failed, a.RowsRemapped.Failed = true, true }, nil, "rows: a row of memory could not be remapped"},
		{"replay", func(b, a *State) { a.Links[0].Replay = 8 }, nil, "nvlink: 1 replay errors on link 0"},
		{"recovery", func(b, a *State) { a.Links[0].Recovery = 1 }, nil, "nvlink: 1 recovery errors on link 0"},
		{"flit", func(b, a *State) { a.Links[0].CRCFlit = 5 }, nil, "nvlink: 2 CRC flit errors on link 0"},
		{"data", func(b, a *State) { a.Links[0].CRCData = 1 }, nil, "nvlink: 1 CRC data errors on link 0"},
		{"a link that went down", func(b, a *State) { a.Links[0] = Link{} }, nil, "nvlink: link 0 went down"},
		{"a link that went down, with counters", func(b, a *State) { a.Links[0] = Link{Replay: 99, CRCData: 1} }, nil, "nvlink: link 0 went down"},
		{"a link that was down and is gone", func(b, a *State) { a.Links = a.Links[:1] }, nil, "nvlink: link 3 went down"},
		{"links in another order", func(b, a *State) { a.Links[0], a.Links[1] = a.Links[1], a.Links[0] }, nil, ""},
		{"a link that is gone", func(b, a *State) { a.Links = a.Links[1:] }, nil, "nvlink: link 0 went down"},
		{"throttled", func(b, a *State) { a.Throttled |= 8 | 64 }, nil, "throttle: clocks were held down: hardware slowdown\nthrottle: clocks were held down: hardware thermal slowdown"},
		{"throttled before", func(b, a *State) { b.Throttled = 128 }, nil, "throttle: clocks were held down: hardware power brake"},
		{"software thermal", func(b, a *State) { a.Throttled |= 32 }, nil, "throttle: clocks were held down: software thermal slowdown"},
		{"board limit", func(b, a *State) { a.Throttled |= 512 }, nil, "throttle: clocks were held down: board limit"},
		{"reliability", func(b, a *State) { a.Throttled |= 1024 }, nil, "throttle: clocks were held down: reliability"},
		{"a reason of the future", func(b, a *State) { a.Throttled |= 1 << 20 }, nil, "throttle: clocks were held down: reason 0x100000"},
		{"untold", func(b, a *State) { a.Untold = map[string]string{"ECC": "GPU is lost", "power": "GPU is lost"} }, nil, "lost: it does not tell ECC any more: GPU is lost"},
		{"all untold", func(b, a *State) {
			a.Untold = map[string]string{"f": "1", "b": "2", "e": "3", "a": "4", "d": "5", "c": "6"}
		}, nil,
			"lost: it does not tell a any more: 4\nlost: it does not tell b \nlost: it does not tell c \nlost: it does not tell d \nlost: it does not tell e \nlost: it does not tell f "},
		{"gone", func(b, a *State) { a.PCI = "elsewhere" }, nil, "lost: it is not there any more"},
		{"xid", func(b, a *State) {}, []Event{{PCI: "0000:1b:00.0", XID: 79}}, "xid: Xid 79 was reported"},
		{"double bit", func(b, a *State) {}, []Event{{PCI: "0000:1b:00.0", ECC: true}}, "ecc: an uncorrected ECC error was reported"},
		{"xid of nobody", func(b, a *State) {}, []Event{{PCI: "unknown", XID: 48}}, "xid: Xid 48 was reported"},
		{"all at once", func(b, a *State) { a.Uncorrected, a.Links[0].Replay = 3, 8 }, []Event{{PCI: "0000:1b:00.0", XID: 1}}, "ecc: \nnvlink: \nxid: "},
	} {
		b, a := healthy(), healthy()
		c.change(&b, &a)
		other := State{Index: 0, UUID: "GPU-0", PCI: "0000:1a:00.0"}
		got := Compare([]State{other, b}, []State{a, other}, c.events)
		want := strings.Split(c.want, "\n")
		if c.want == "" {
			want = nil
		}
		if !slices.EqualFunc(got, want, func(f Finding, w string) bool { return strings.HasPrefix(f.Kind+": "+f.What, w) }) {
			t.Errorf("%s: %v, want %q", c.name, got, want)
		}
		for _, f := range got {
			if known := f.Index == 1 && f.UUID == "GPU-1" && f.PCI == "0000:1b:00.0"; known == (c.name == "xid of nobody") {
				t.Errorf("%s is of the wrong device: %v", c.name, f)
			}
		}
	}
	if got, want := Compare(nil, nil, []Event{{PCI: "0000:9b:00.0", XID: 48}}), (Finding{"xid", -1, "unknown", "0000:9b:00.0", "Xid 48 was reported"}); !slices.Equal(got, []Finding{want}) {
		t.Errorf("an event of a device that nobody watches: %v, want %v", got, want)
	}
	f := Finding{"ecc", 1, "GPU-1", "0000:1b:00.0", "x"}
	if got := fmt.Sprint(f); got != "device 1 (GPU-1, 0000:1b:00.0): ecc: x" {
		t.Error(got)
	}
	if got := Throttle(1 | 8).Names(false); !slices.Equal(got, []string{"idle", "hardware slowdown"}) {
		t.Error(got)
	}
}
