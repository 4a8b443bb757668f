package gpu

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestParseChoice: each form, and what is said of what is none.
func TestParseChoice(t *testing.T) {
	for _, c := range []struct {
		devices, variable string
		want              Choice
		text              string // what String makes of it
	}{
		{"", "", Choice{}, "all"},
		{"all", "", Choice{}, "all"},
		{"0", "", Choice{Indices: []int{0}}, "0"},
		{"63", "", Choice{Indices: []int{63}}, "63"},
		{"0-3", "", Choice{Indices: []int{0, 1, 2, 3}}, "0,1,2,3"},
		{"5-5", "", Choice{Indices: []int{5}}, "5"},
		{"2,0", "", Choice{Indices: []int{2, 0}}, "2,0"},
		{"4-5,0,2-3", "", Choice{Indices: []int{4, 5, 0, 2, 3}}, "4,5,0,2,3"},
		{"sim", "", Choice{Simulated: 2}, "sim:2"},
		{"sim:1", "", Choice{Simulated: 1}, "sim:1"},
		{"sim:16", "", Choice{Simulated: 16}, "sim:16"},
		{"", "sim", Choice{Simulated: 2}, "sim:2"},
		{"", "sim:3", Choice{Simulated: 3}, "sim:3"},
		{"sim:4", "sim", Choice{Simulated: 4}, "sim:4"},
		{"sim:4", "sim:3", Choice{Simulated: 4}, "sim:4"},
	} {
		got, err := ParseChoice(c.devices, c.variable)
		if err != nil || !reflect.DeepEqual(got, c.want) || got.String() != c.text {
			t.Errorf("%q, %q: %+v (%s), %v; want %+v", c.devices, c.variable, got, got, err, c.want)
		}
		if again, err := ParseChoice(got.String(), ""); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s is read as %+v, %v", got, again, err)
		}
	}
	const rule = `; known are all, 0-7, 0,2 and sim:N`
	const known = `is no number from 0 to 63` + rule
	for _, c := range []struct{ devices, variable, want string }{
		{"x", "", `--devices "x": "x" ` + known},
		{"-1", "", `--devices "-1": "" ` + known},
		{"1-", "", `--devices "1-": "" ` + known},
		{"0,,1", "", `--devices "0,,1": "" ` + known},
		{"64", "", `--devices "64": "64" ` + known},
		{"0-64", "", `--devices "0-64": "64" ` + known},
		{"00", "", `--devices "00": "00" ` + known},
		{"+1", "", `--devices "+1": "+1" ` + known},
		{"1 ", "", `--devices "1 ": "1 " ` + known},
		{"0-1-2", "", `--devices "0-1-2": "1-2" ` + known},
		{"99999999999999999999", "", `"99999999999999999999" ` + known},
		{"3-1", "", `--devices "3-1": the range 3-1 runs backwards` + rule},
		{"0,0", "", `--devices "0,0": device 0 is named twice` + rule},
		{"0-3,2", "", `--devices "0-3,2": device 2 is named twice` + rule},
		{"sim:0", "", `--devices "sim:0": "0" is no number from 1 to 16` + rule},
		{"sim:17", "", `--devices "sim:17": "17" is no number from 1 to 16`},
		{"sim:", "", `--devices "sim:": "" is no number from 1 to 16`},
		{"SIM", "", `--devices "SIM": "SIM" ` + known},
		{"sim,0", "", `--devices "sim,0": sim stands alone, as devices are real or simulated` + rule},
		{"0,sim:1", "", `--devices "0,sim:1": sim:1 stands alone`},
		{"sim:2,sim:3", "", `--devices "sim:2,sim:3": sim:2 stands alone`},
		{"sim:2,", "", `--devices "sim:2,": sim:2 stands alone`},
		{",", "", `--devices ",": "" ` + known},
		{"7-0", "", `--devices "7-0": the range 7-0 runs backwards` + rule},
		{"0-99999999999", "", `--devices "0-99999999999": "99999999999" ` + known},
		{"", "sim:2,sim:3", `LOCKSTEP_CUDA="sim:2,sim:3": it must be sim or sim:N, or not be set`},
		{"", "yes", `LOCKSTEP_CUDA="yes": it must be sim or sim:N, or not be set`},
		{"", "0", `LOCKSTEP_CUDA="0": it must be sim or sim:N, or not be set`},
		{"", "sim:x", `LOCKSTEP_CUDA="sim:x": "x" is no number from 1 to 16; it must be sim or sim:N, or not be set`},
		{"", "sim:0", `LOCKSTEP_CUDA="sim:0": "0" is no number from 1 to 16; it must be sim or sim:N, or not be set`},
		{"", "sim:-1", `LOCKSTEP_CUDA="sim:-1": "-1" is no number from 1 to 16`},
		{"", "sim:17", `LOCKSTEP_CUDA="sim:17": "17" is no number from 1 to 16`},
		{"", "SIM", `LOCKSTEP_CUDA="SIM": it must be sim or sim:N, or not be set`},
		{"", "real", `LOCKSTEP_CUDA="real": it must be sim or sim:N, or not be set`},
		{"", "sim ", `LOCKSTEP_CUDA="sim ": it must be sim or sim:N, or not be set`},
		{"sim:2", "real", `LOCKSTEP_CUDA="real": it must be sim or sim:N, or not be set`},
		{"0-1", "sim", `--devices "0-1" means real devices and LOCKSTEP_CUDA="sim" simulated ones`},
		{"all", "sim:2", `--devices "all" means real devices and LOCKSTEP_CUDA="sim:2" simulated ones`},
	} {
		got, err := ParseChoice(c.devices, c.variable)
		if err == nil || !strings.Contains(err.Error(), c.want) || !reflect.DeepEqual(got, Choice{}) {
			t.Errorf("%q, %q: %+v, %v; want %s", c.devices, c.variable, got, err, c.want)
		}
	}
}

// TestPCIAddress: what CUDA, NVML and Linux write is the same address.
func TestPCIAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:1B:00.0": "0000:1b:00.0", "00000000:1B:00.0": "0000:1b:00.0", "0000:1b:00.0\n": "0000:1b:00.0",
		"00010000:1B:00.0": "00010000:1b:00.0", "": "", "000000001B": "000000001b",
	} {
		if got := PCIAddress(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestInfo: a simulated device says that it is one.
func TestInfo(t *testing.T) {
	i := Info{Index: 3, Name: "X", PCI: "0000:1b:00.0", Major: 8}
	if got := fmt.Sprint(i); got != "device 3 (X, 0000:1b:00.0)" {
		t.Error(got)
	}
	i.Simulated, i.PCI = true, ""
	if got := fmt.Sprint(i); got != "simulated device 3 (X, sm_80)" {
		t.Error(got)
	}
}

// TestUnavailable: the kind of error is told from others, through any wrapping.
func TestUnavailable(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("open: %w", &UnavailableError{What: "w", Hint: "h", Err: cause})
	var un *UnavailableError
	if !errors.As(err, &un) || !errors.Is(err, cause) || err.Error() != "open: no CUDA device can be used: w (h)" {
		t.Error(err)
	}
	if err := NotBuilt(); !errors.As(err, &un) || !strings.Contains(err.Error(), "make build-cuda") {
		t.Error(err)
	}
}
