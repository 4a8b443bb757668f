//go:build cuda

package mon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/lockstep-ml/lockstep/gpu"
)

// machine is a simulated DGX H100 whose devices tell what card has.
type machine struct {
	*server.Server
	mu     sync.Mutex
	cards  []*card
	events chan nvml.EventData
	asked  map[nvml.Device]uint64 // kinds of events that devices are to report
}

// card is what a device tells.
type card struct {
	dev         *server.Device
	info        gpu.Info
	throttle    uint64
	asked       int // how often it told its throttle
	uncorrected uint64
	replay      uint64
	up          bool
	pending     bool // rows to be remapped
	failed      bool
	ret         nvml.Return // of every question but identity
}

func newMachine() *machine {
	m := &machine{Server: dgxh100.New(), events: make(chan nvml.EventData, 10), asked: map[nvml.Device]uint64{}}
	for i, d := range m.Devices {
		dev := d.(*server.Device)
		c := &card{dev: dev, up: true, info: gpu.Info{Index: i, UUID: dev.UUID, PCI: dev.PciBusID}}
		m.cards = append(m.cards, c)
		m.tell(c)
	}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }, WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			for end := time.After(time.Duration(ms) * time.Millisecond); ; {
				select {
				case e := <-m.events:
					if m.wants(e) {
						return e, nvml.SUCCESS
					}
				case <-end:
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			}
		}}, nvml.SUCCESS
	}
	return m
}

// wants reports whether an event is of a kind that its device was asked for: others no one
// hears of.
func (m *machine) wants(e nvml.EventData) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[e.Device]&e.EventType != 0
}

// with changes the machine while it is looked at.
func (m *machine) with(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// throttled holds the clocks of a card down until it has told that twice, or half a minute.
func (m *machine) throttled(c *card, why uint64) {
	var until int
	m.with(func() { c.throttle, until = why, c.asked+2 })
	for end, seen := time.Now().Add(30*time.Second), false; !seen && time.Now().Before(end); time.Sleep(interval / 10) {
		m.with(func() { seen = c.asked >= until })
	}
	m.with(func() { c.throttle = 1 })
}

// answer is a function of a device that tells a value of its card.
func answer[T any](m *machine, c *card, v func() T) func() (T, nvml.Return) {
	return func() (T, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return v(), c.ret
	}
}

func (m *machine) tell(c *card) {
	d := c.dev
	d.GetClockInfoFunc = func(k nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 2619}[k], c.ret
	}
	d.GetPowerUsageFunc = answer(m, c, func() uint32 { return 120500 })
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, c.ret }
	d.GetCurrentClocksThrottleReasonsFunc = answer(m, c, func() uint64 { c.asked++; return c.throttle })
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, c.ret
	}
	d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, which nvml.EccCounterType) (uint64, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if which != nvml.VOLATILE_ECC {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return map[nvml.MemoryErrorType]uint64{nvml.MEMORY_ERROR_TYPE_CORRECTED: 17, nvml.MEMORY_ERROR_TYPE_UNCORRECTED: c.uncorrected}[k], c.ret
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return 3, 1, c.pending, c.failed, c.ret
	}
	d.GetComputeRunningProcessesFunc = answer(m, c, func() []nvml.ProcessInfo {
		return []nvml.ProcessInfo{{Pid: 4711}, {Pid: uint32(os.Getpid())}, {Pid: 42}, {Pid: 4711}}
	})
	d.GetNvLinkStateFunc = func(i int) (nvml.EnableState, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case i >= 18:
			return 0, nvml.ERROR_INVALID_ARGUMENT
		case i == 7 || !c.up:
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkErrorCounterFunc = func(i int, k nvml.NvLinkErrorCounter) (uint64, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i == 7 {
			return 0, nvml.ERROR_UNKNOWN // it is down
		}
		if k == nvml.NVLINK_ERROR_DL_CRC_DATA {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return map[nvml.NvLinkErrorCounter]uint64{nvml.NVLINK_ERROR_DL_REPLAY: c.replay, nvml.NVLINK_ERROR_DL_CRC_FLIT: 2}[k], nvml.SUCCESS
	}
	const supported = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeSingleBitEccError
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return supported, nvml.SUCCESS }
	d.RegisterEventsFunc = func(kinds uint64, _ nvml.EventSet) nvml.Return {
		if kinds&^supported != 0 {
			return nvml.ERROR_NOT_SUPPORTED
		}
		m.with(func() { m.asked[d] |= kinds })
		return nvml.SUCCESS
	}
}

func opened(t *testing.T, m *machine) *Monitor {
	t.Helper()
	mon, err := Over(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mon.Close(); err != nil {
			t.Error(err)
		}
	})
	return mon
}

// TestRead: all that a device tells is read.
func TestRead(t *testing.T) {
	m := newMachine()
	c := m.cards[2]
	c.uncorrected, c.replay, c.throttle = 1, 9, 4
	got, err := opened(t, m).Read([]gpu.Info{c.info})
	if err != nil {
		t.Fatal(err)
	}
	name, _ := c.dev.GetName()
	want := State{Index: 2, Name: name, UUID: c.dev.UUID, PCI: "0000:02:00.0", Driver: "550.54.15", ClockSM: 1980, ClockMemory: 2619, Power: 120500,
		Temperature: 41, Throttled: 4, ECC: true, Corrected: 17, Uncorrected: 1, RowsRemapped: Rows{Corrected: 3, Uncorrected: 1}, Others: []uint32{42, 4711},
		Untold: map[string]string{}}
	for i := range 18 {
		want.Links = append(want.Links, Link{Index: i, Up: true, Replay: 9, CRCFlit: 2})
	}
	want.Links[7] = Link{Index: 7}
	if !reflect.DeepEqual(got, []State{want}) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

// TestUntold: what a device does not tell, or the library has no function for, is said and
// not asked.
func TestUntold(t *testing.T) {
	m := newMachine()
	lacks := m.LookupSymbolFunc
	m.LookupSymbolFunc = func(s string) error {
		if s == "nvmlDeviceGetRemappedRows" || s == symbolLinkErrors {
			return errors.New("no such symbol")
		}
		return lacks(s)
	}
	for _, c := range m.cards {
		c.dev.GetRemappedRowsFunc, c.dev.GetNvLinkStateFunc = nil, nil // they would end the test
	}
	m.cards[1].ret = nvml.ERROR_NOT_SUPPORTED
	got, err := opened(t, m).Read([]gpu.Info{m.cards[0].info, m.cards[1].info})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"remapped rows": "the library has no nvmlDeviceGetRemappedRows", "NVLinks": "the library has no nvmlDeviceGetNvLinkErrorCounter"}; !reflect.DeepEqual(got[0].Untold, want) {
		t.Errorf("%v", got[0].Untold)
	}
	for _, what := range []string{"power", "ECC", "uncorrected ECC errors", "throttle reasons", "processes"} {
		if got[1].Untold[what] != nvml.ERROR_NOT_SUPPORTED.Error() {
			t.Errorf("%s: %q", what, got[1].Untold[what])
		}
	}
}

// TestDevices: a device is found by where it is, and must be the one that CUDA has there.
func TestDevices(t *testing.T) {
	m := newMachine()
	mon := opened(t, m)
	c := m.cards[0]
	swapped, absent, simulated := c.info, c.info, c.info
	swapped.UUID, absent.PCI, simulated.Simulated = "GPU-other", "0000:ff:00.0", true
	for _, x := range []struct {
		info gpu.Info
		want string
	}{
		{swapped, "at its address is " + c.dev.UUID + ", not GPU-other"},
		{absent, "nvmlDeviceGetHandleByPciBusId: "},
		{simulated, "a simulated device has no management library"},
	} {
		_, err := mon.Read([]gpu.Info{x.info})
		_, err2 := mon.Watch([]gpu.Info{x.info})
		for _, err := range []error{err, err2} {
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %s", err, x.want)
			}
		}
	}
	c.dev.MigMode = nvml.DEVICE_MIG_ENABLE // CUDA has the identity of a part of the card
	got, err := mon.Read([]gpu.Info{swapped})
	if err != nil || !got[0].MIG || got[0].UUID != "GPU-other" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWatch: what happens while a device is watched is found, also what is over again when
// the watch ends, and of no other device.
func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		during func(m *machine, c *card)
		want   []string
	}{
		"nothing":                  {func(m *machine, c *card) {}, nil},
		"uncorrected":              {func(m *machine, c *card) { m.with(func() { c.uncorrected++ }) }, []string{"ecc: 1 uncorrected ECC errors"}},
		"row to be remapped":       {func(m *machine, c *card) { m.with(func() { c.pending = true }) }, []string{"rows: a row of memory waits for a reset of the device to be remapped"}},
		"row that is not remapped": {func(m *machine, c *card) { m.with(func() { c.failed = true }) }, []string{"rows: a row of memory could not be remapped"}},
		"nvlink":                   {func(m *machine, c *card) { m.with(func() { c.up = false }) }, []string{"nvlink: link 0 went down"}},
		"throttled for a while": {func(m *machine, c *card) {
			m.throttled(c, 32)
		}, []string{"throttle: clocks were held down: software thermal slowdown"}},
		"events": {func(m *machine, c *card) {
			m.events <- nvml.EventData{Device: c.dev, EventType: nvml.EventTypeXidCriticalError, EventData: 79}
			m.events <- nvml.EventData{Device: c.dev, EventType: nvml.EventTypeSingleBitEccError} // it was not asked for
			m.events <- nvml.EventData{Device: c.dev, EventType: nvml.EventTypeDoubleBitEccError}
		}, []string{"xid: Xid 79 was reported", "ecc: an uncorrected ECC error was reported"}},
		"lost": {func(m *machine, c *card) { m.with(func() { c.ret = nvml.ERROR_GPU_IS_LOST }) }, []string{"lost: it does not tell ECC any more: "}},
	} {
		m := newMachine()
		mon := opened(t, m)
		w, err := mon.Watch([]gpu.Info{m.cards[4].info, m.cards[3].info})
		if err != nil {
			t.Fatal(err)
		}
		c.during(m, m.cards[3])
		got := w.Stop()
		for i, want := range c.want {
			if i >= len(got) || !strings.HasPrefix(got[i].Kind+": "+got[i].What, want) || got[i].UUID != m.cards[3].dev.UUID || got[i].Index != 3 {
				t.Errorf("%s: %v, want %q", name, got, c.want)
				break
			}
		}
		if (c.want == nil || name == "events") && len(got) != len(c.want) {
			t.Errorf("%s: %v, want %q and no more", name, got, c.want)
		}
		if len(w.Before) != 2 || len(w.After) != 2 || len(w.Before[0].Untold) != 0 {
			t.Errorf("%s: %+v, %+v", name, w.Before, w.After)
		}
	}
}

// TestNoEvents: without events the rest is watched, and what is missing is said.
func TestNoEvents(t *testing.T) {
	for name, hurt := range map[string]func(m *machine){
		"no symbol": func(m *machine) {
			has := m.LookupSymbolFunc
			m.LookupSymbolFunc = func(s string) error {
				if s == symbolEvents {
					return errors.New("no such symbol")
				}
				return has(s)
			}
		},
		"no set": func(m *machine) {
			m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NO_PERMISSION }
		},
		"not registered": func(m *machine) {
			m.cards[0].dev.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
		},
	} {
		m := newMachine()
		hurt(m)
		w, err := opened(t, m).Watch([]gpu.Info{m.cards[0].info})
		if err != nil {
			t.Fatal(err)
		}
		m.throttled(m.cards[0], 64)
		if got := w.Stop(); len(got) != 1 || got[0].Kind != "throttle" || w.Before[0].Untold["events"] == "" {
			t.Errorf("%s: %v, untold %v", name, got, w.Before[0].Untold)
		}
	}
}

// TestOpenFails: after a failed load nothing more is called. The mock panics on any call but
// Init; and with the real library of this machine, or none, the process lives.
func TestOpenFails(t *testing.T) {
	for ret, want := range map[nvml.Return]string{nvml.ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 cannot be loaded", nvml.ERROR_DRIVER_NOT_LOADED: "nvmlInit: "} {
		if m, err := Over(&mock.Interface{InitFunc: func() nvml.Return { return ret }}); m != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", ret, err)
		}
	}
	if os.Getenv("MON_TEST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpenFails$", "-test.v")
		cmd.Env = append(os.Environ(), "MON_TEST=1", "LD_LIBRARY_PATH="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestOpenFails") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	m, err := Open()
	if err == nil {
		err = m.Close()
	}
	fmt.Println("NVML of this machine:", err)
}
