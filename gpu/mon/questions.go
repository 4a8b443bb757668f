//go:build cuda

package mon

import (
	"errors"
	"os"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/lockstep-ml/lockstep/gpu"
)

// Functions that are asked for in more than one place.
const (
	symbolThrottle   = "nvmlDeviceGetCurrentClocksThrottleReasons"
	symbolEvents     = "nvmlEventSetCreate"
	symbolLinkErrors = "nvmlDeviceGetNvLinkErrorCounter"
)

// question is something that a device may tell.
type question struct {
	what   string // its name in Untold
	symbol string // the function of the library, without which it is not asked
	ask    func(d nvml.Device, s *State) nvml.Return
}

var questions = []question{
	{"name", "nvmlDeviceGetName", func(d nvml.Device, s *State) (r nvml.Return) {
		s.Name, r = d.GetName()
		return r
	}},
	{"clock of multiprocessors", "nvmlDeviceGetClockInfo", func(d nvml.Device, s *State) (r nvml.Return) {
		s.ClockSM, r = d.GetClockInfo(nvml.CLOCK_SM)
		return r
	}},
	{"clock of memory", "nvmlDeviceGetClockInfo", func(d nvml.Device, s *State) (r nvml.Return) {
		s.ClockMemory, r = d.GetClockInfo(nvml.CLOCK_MEM)
		return r
	}},
	{"power", "nvmlDeviceGetPowerUsage", func(d nvml.Device, s *State) (r nvml.Return) {
		s.Power, r = d.GetPowerUsage()
		return r
	}},
	{"temperature", "nvmlDeviceGetTemperature", func(d nvml.Device, s *State) (r nvml.Return) {
		s.Temperature, r = d.GetTemperature(nvml.TEMPERATURE_GPU)
		return r
	}},
	{"throttle reasons", symbolThrottle, func(d nvml.Device, s *State) nvml.Return {
		t, r := d.GetCurrentClocksThrottleReasons()
		s.Throttled = Throttle(t)
		return r
	}},
	{"MIG", "nvmlDeviceGetMigMode", func(d nvml.Device, s *State) nvml.Return {
		mode, _, r := d.GetMigMode()
		s.MIG = r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
		return r
	}},
	{"ECC", "nvmlDeviceGetEccMode", func(d nvml.Device, s *State) nvml.Return {
		mode, _, r := d.GetEccMode()
		s.ECC = r == nvml.SUCCESS && mode == nvml.FEATURE_ENABLED
		return r
	}},
	{"corrected ECC errors", "nvmlDeviceGetTotalEccErrors", func(d nvml.Device, s *State) (r nvml.Return) {
		s.Corrected, r = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
		return r
	}},
	{"uncorrected ECC errors", "nvmlDeviceGetTotalEccErrors", func(d nvml.Device, s *State) (r nvml.Return) {
		s.Uncorrected, r = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		return r
	}},
	{"remapped rows", "nvmlDeviceGetRemappedRows", func(d nvml.Device, s *State) (r nvml.Return) {
		x := &s.RowsRemapped
		x.Corrected, x.Uncorrected, x.Pending, x.Failed, r = d.GetRemappedRows()
		return r
	}},
	{"processes", "nvmlDeviceGetComputeRunningProcesses", func(d nvml.Device, s *State) nvml.Return {
		list, r := d.GetComputeRunningProcesses()
		for _, p := range list {
			if p.Pid != uint32(os.Getpid()) && !slices.Contains(s.Others, p.Pid) {
				s.Others = append(s.Others, p.Pid)
			}
		}
		slices.Sort(s.Others)
		return r
	}},
}

// state asks a device everything.
func (m *Monitor) state(d device) State {
	s := State{Index: d.info.Index, Name: d.info.Name, UUID: d.info.UUID, PCI: gpu.PCIAddress(d.info.PCI), Driver: m.driver, Untold: map[string]string{}}
	for _, q := range questions {
		if !m.has[q.symbol] {
			s.Untold[q.what] = "the library has no " + q.symbol
		} else if r := q.ask(d.dev, &s); r != nvml.SUCCESS {
			s.Untold[q.what] = r.Error()
		}
	}
	if err := m.links(d.dev, &s); err != nil {
		s.Untold["NVLinks"] = err.Error()
	}
	return s
}

// links asks for the state of each NVLink and its counters. A device answers of a link that
// it does not have that it does not support it, or that there is no such number.
func (m *Monitor) links(d nvml.Device, s *State) error {
	if !m.has[symbolLinkErrors] {
		return errors.New("the library has no " + symbolLinkErrors)
	}
	for i := range nvml.NVLINK_MAX_LINKS {
		state, r := d.GetNvLinkState(i)
		if r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if r != nvml.SUCCESS {
			return r
		}
		l := Link{Index: i, Up: state == nvml.FEATURE_ENABLED}
		for _, c := range []struct {
			into    *uint64
			counter nvml.NvLinkErrorCounter
		}{{&l.Replay, nvml.NVLINK_ERROR_DL_REPLAY}, {&l.Recovery, nvml.NVLINK_ERROR_DL_RECOVERY}, {&l.CRCFlit, nvml.NVLINK_ERROR_DL_CRC_FLIT}, {&l.CRCData, nvml.NVLINK_ERROR_DL_CRC_DATA}} {
			if !l.Up {
				break
			}
			n, r := d.GetNvLinkErrorCounter(i, c.counter)
			if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED {
				return r
			}
			*c.into = n
		}
		s.Links = append(s.Links, l)
	}
	return nil
}
