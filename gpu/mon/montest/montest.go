//go:build cuda

package montest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon"
)

// Trouble is a library with three devices, to which nothing happens until begin is called:
// then the first has an uncorrected error of memory, which it reports too, and the second an
// Xid, and its clocks are held down by heat; the third is well. What a device was not asked to
// report no one hears of.
func Trouble() (m *mon.Monitor, devices []gpu.Info, begin func(), err error) {
	lib := dgxh100.New()
	var begun atomic.Bool
	events := make(chan nvml.EventData, 2)
	var asked [2]atomic.Uint64 // kinds of events that the first two are to report
	lib.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }, WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			for end := time.After(time.Duration(ms) * time.Millisecond); ; {
				select {
				case e := <-events:
					if i := slices.Index(lib.Devices[:2], e.Device); e.EventType&asked[i].Load() != 0 {
						return e, nvml.SUCCESS
					}
				case <-end:
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			}
		}}, nvml.SUCCESS
	}
	for i, x := range lib.Devices[:3] {
		d := x.(*server.Device)
		devices = append(devices, gpu.Info{Index: i, UUID: d.UUID, PCI: d.PciBusID})
		quiet(d)
		d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			if i == 0 && k == nvml.MEMORY_ERROR_TYPE_UNCORRECTED && begun.Load() {
				return 1, nvml.SUCCESS
			}
			return 0, nvml.SUCCESS
		}
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
			if i == 1 && begun.Load() {
				return 64, nvml.SUCCESS
			}
			return 1, nvml.SUCCESS
		}
	}
	for i := range asked {
		lib.Devices[i].(*server.Device).RegisterEventsFunc = func(kinds uint64, _ nvml.EventSet) nvml.Return {
			asked[i].Store(kinds)
			return nvml.SUCCESS
		}
	}
	m, err = mon.Over(lib)
	return m, devices, func() {
		begun.Store(true)
		events <- nvml.EventData{Device: lib.Devices[0], EventType: nvml.EventTypeDoubleBitEccError}
		events <- nvml.EventData{Device: lib.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	}, err
}

// quiet has a device tell nothing of most, and take the question for events.
func quiet(d *server.Device) {
	none := nvml.ERROR_NOT_SUPPORTED
	d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, none }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, none }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, none }
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 0, 0, none }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, none }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, none }
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, none }
	d.GetNvLinkErrorCounterFunc = func(int, nvml.NvLinkErrorCounter) (uint64, nvml.Return) { return 0, none }
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0xff, nvml.SUCCESS }
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
}
