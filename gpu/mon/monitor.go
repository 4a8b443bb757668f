//go:build cuda

package mon

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/lockstep-ml/lockstep/gpu"
)

// Monitor is the management library, loaded. There is none where loading failed: then any
// call of go-nvml would end the process.
type Monitor struct {
	lib    nvml.Interface
	driver string
	has    map[string]bool // which of the optional functions the library has
}

// Open loads the library.
func Open() (*Monitor, error) { return Over(nvml.New()) }

// Over is Open of a library that is given: one of go-nvml's mocks.
func Over(lib nvml.Interface) (*Monitor, error) {
	if r := lib.Init(); r == nvml.ERROR_LIBRARY_NOT_FOUND {
		return nil, errors.New("libnvidia-ml.so.1 cannot be loaded; it comes with NVIDIA's driver")
	} else if r != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlInit: %v", r)
	}
	m := &Monitor{lib: lib, has: map[string]bool{}}
	// A function that this version of the library lacks ends the process too.
	for _, q := range questions {
		m.has[q.symbol] = lib.Extensions().LookupSymbol(q.symbol) == nil
	}
	for _, s := range []string{symbolEvents, symbolLinkErrors} {
		m.has[s] = lib.Extensions().LookupSymbol(s) == nil
	}
	var r nvml.Return
	if m.driver, r = lib.SystemGetDriverVersion(); r != nvml.SUCCESS {
		return nil, errors.Join(fmt.Errorf("nvmlSystemGetDriverVersion: %v", r), m.Close())
	}
	return m, nil
}

// Close unloads the library.
func (m *Monitor) Close() error {
	if r := m.lib.Shutdown(); r != nvml.SUCCESS {
		return fmt.Errorf("nvmlShutdown: %v", r)
	}
	return nil
}

// device is a device of CUDA in the library.
type device struct {
	info gpu.Info
	dev  nvml.Device
}

// find finds a real device by where it is plugged in, and makes sure that it is the same.
func (m *Monitor) find(info gpu.Info) (device, error) {
	fail := func(err error) (device, error) { return device{}, fmt.Errorf("NVML: %s: %w", info, err) }
	if info.Simulated {
		return fail(errors.New("a simulated device has no management library"))
	}
	d, r := m.lib.DeviceGetHandleByPciBusId(info.PCI)
	if r != nvml.SUCCESS {
		return fail(fmt.Errorf("nvmlDeviceGetHandleByPciBusId: %w", r))
	}
	uuid, r := d.GetUUID()
	if r != nvml.SUCCESS {
		return fail(fmt.Errorf("nvmlDeviceGetUUID: %w", r))
	}
	if mode, _, r := d.GetMigMode(); r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE {
		return device{info, d}, nil // CUDA names a part of the card
	}
	if uuid != info.UUID {
		return fail(fmt.Errorf("at its address is %s, not %s", uuid, info.UUID))
	}
	return device{info, d}, nil
}

// Read reads the state of devices. What one does not tell is in its Untold.
func (m *Monitor) Read(devices []gpu.Info) ([]State, error) {
	found, err := m.findAll(devices)
	if err != nil {
		return nil, err
	}
	return m.read(found), nil
}

func (m *Monitor) findAll(devices []gpu.Info) ([]device, error) {
	var out []device
	for _, info := range devices {
		d, err := m.find(info)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (m *Monitor) read(devices []device) []State {
	var out []State
	for _, d := range devices {
		out = append(out, m.state(d))
	}
	return out
}

// Watch looks at devices until Stop.
type Watch struct {
	m       *Monitor
	devices []device
	set     nvml.EventSet // nil where the library has no events
	untold  map[string]string
	stop    chan struct{}
	done    sync.WaitGroup

	// Before and After are the devices when the watch began and ended; Events is what they
	// reported meanwhile. The latter two are there after Stop.
	Before, After []State
	Events        []Event

	throttled []Throttle // per device, since Before
}

// interval is how long events are waited for before clocks are looked at again.
const interval = 100 * time.Millisecond

// Watch reads devices and begins to look at them.
func (m *Monitor) Watch(devices []gpu.Info) (*Watch, error) {
	found, err := m.findAll(devices)
	if err != nil {
		return nil, err
	}
	w := &Watch{m: m, devices: found, stop: make(chan struct{}), untold: map[string]string{}, throttled: make([]Throttle, len(found))}
	w.register()
	w.Before = w.told(m.read(found))
	w.done.Go(w.look)
	return w, nil
}

// register asks for the events of the devices.
func (w *Watch) register() {
	if !w.m.has[symbolEvents] {
		w.untold["events"] = "the library has none"
		return
	}
	set, r := w.m.lib.EventSetCreate()
	if r != nvml.SUCCESS {
		w.untold["events"] = r.Error()
		return
	}
	for _, d := range w.devices {
		kinds, r := d.dev.GetSupportedEventTypes()
		if r == nvml.SUCCESS {
			r = d.dev.RegisterEvents(kinds&(nvml.EventTypeXidCriticalError|nvml.EventTypeDoubleBitEccError), set)
		}
		if r != nvml.SUCCESS {
			w.untold["events"] = r.Error()
		}
	}
	w.set = set
}

// told adds what no device told the watch.
func (w *Watch) told(states []State) []State {
	for i := range states {
		for what, why := range w.untold {
			states[i].Untold[what] = why
		}
	}
	return states
}

// look waits for events and looks at clocks, in turn.
func (w *Watch) look() {
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		if !w.event(interval) {
			w.clocks()
		}
	}
}

// event waits for an event, and reports whether there was one.
func (w *Watch) event(wait time.Duration) bool {
	if w.set == nil {
		select {
		case <-w.stop:
		case <-time.After(wait):
		}
		return false
	}
	e, r := w.set.Wait(uint32(wait.Milliseconds()))
	if r == nvml.ERROR_TIMEOUT {
		return false
	}
	if r != nvml.SUCCESS {
		w.untold["events"] = r.Error()
		w.set.Free()
		w.set = nil
		return false
	}
	out := Event{PCI: "unknown", ECC: e.EventType == nvml.EventTypeDoubleBitEccError}
	if !out.ECC {
		out.XID = e.EventData
	}
	for _, d := range w.devices {
		if d.dev == e.Device {
			out.PCI = d.info.PCI
		}
	}
	w.Events = append(w.Events, out)
	return true
}

// clocks notes why the clocks of the devices are held down now.
func (w *Watch) clocks() {
	if !w.m.has[symbolThrottle] {
		return
	}
	for i, d := range w.devices {
		if t, r := d.dev.GetCurrentClocksThrottleReasons(); r == nvml.SUCCESS {
			w.throttled[i] |= Throttle(t)
		}
	}
}

// lastEvents bounds how many events are read when a watch ends.
const lastEvents = 1000

// Stop ends the watch, reads the devices again and says what happened to them. It is called
// once.
func (w *Watch) Stop() []Finding {
	close(w.stop)
	w.done.Wait()
	for range lastEvents {
		if w.set == nil || !w.event(interval) {
			break
		}
	}
	if w.set != nil {
		w.set.Free()
	}
	w.After = w.told(w.m.read(w.devices))
	for i := range w.After {
		w.After[i].Throttled |= w.throttled[i]
	}
	return Compare(w.Before, w.After, w.Events)
}
