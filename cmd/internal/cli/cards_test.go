//go:build cuda

package cli

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon"
)

// TestCards: an uncorrected error of memory, a throttle and an Xid while a run goes on are of
// the device that has them, through the management library and the watch of the commands.
func TestCards(t *testing.T) {
	m := dgxh100.New()
	var during atomic.Bool // whether the run goes on
	events := make(chan nvml.EventData, 1)
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }, WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			select {
			case e := <-events:
				return e, nvml.SUCCESS
			case <-time.After(time.Duration(ms) * time.Millisecond):
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
		}}, nvml.SUCCESS
	}
	o := &Opened{}
	for i, x := range m.Devices[:3] {
		d := x.(*server.Device)
		o.devices = append(o.devices, gpu.Info{Index: i, UUID: d.UUID, PCI: d.PciBusID})
		still(d)
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0xff, nvml.SUCCESS }
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
		switch i {
		case 0:
			d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
				if k == nvml.MEMORY_ERROR_TYPE_UNCORRECTED && during.Load() {
					return 1, nvml.SUCCESS
				}
				return 0, nvml.SUCCESS
			}
		case 1:
			d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
				if during.Load() {
					return 64, nvml.SUCCESS
				}
				return 1, nvml.SUCCESS
			}
			events <- nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: 79}
		}
	}
	o.watch = func(all []gpu.Info) (watcher, error) {
		monitor, err := mon.Over(m)
		if err != nil {
			return nil, err
		}
		return watchWith(monitor, all)
	}
	stop := o.Watch()
	during.Store(true)
	got := stop()
	want := [][]string{{"ecc: 1 uncorrected ECC errors"}, {"xid: Xid 79 was reported", "throttle: clocks were held down: hardware thermal slowdown"}, nil}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range got {
		if !w.Monitored || len(w.Findings) != len(want[i]) {
			t.Errorf("%+v", w)
		}
		for _, f := range want[i] {
			found := false
			for _, g := range w.Findings {
				found = found || f == g
			}
			if !found {
				t.Errorf("device %d: %q, want %q", i, w.Findings, f)
			}
		}
	}
}

// still is a device that tells nothing, but what nothing happens to.
func still(d *server.Device) {
	none := nvml.ERROR_NOT_SUPPORTED
	d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, none }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, none }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, none }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 1, nvml.SUCCESS }
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 0, 0, none }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, nvml.SUCCESS }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, none }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, none }
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, none }
	d.GetNvLinkErrorCounterFunc = func(int, nvml.NvLinkErrorCounter) (uint64, nvml.Return) { return 0, none }
}
