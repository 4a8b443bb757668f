//go:build cuda

package cli

import (
	"errors"
	"sync"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/gpu/mon"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cuda"
)

// openCUDA opens devices, over which ranks are dealt. A rank has a stream of its own, which
// it keeps from run to run, as compiling the kernels takes longer than a small run does. The
// process's end closes them.
func openCUDA(c gpu.Choice) (*Opened, error) {
	devices, err := gpu.Open(c)
	var setting *gpu.SettingError
	if errors.As(err, &setting) {
		return nil, AsUsage(err)
	}
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	open := map[int]*cuda.Backend{}
	o := &Opened{watch: watchCards}
	for _, d := range devices {
		o.devices = append(o.devices, d.Info)
	}
	o.Backend = func(rank int) (kernels.Backend, error) {
		mu.Lock()
		defer mu.Unlock()
		if b := open[rank]; b != nil {
			return b, nil
		}
		b, err := cuda.New(devices[o.device(rank)])
		if err != nil {
			return nil, err
		}
		open[rank] = b
		return b, nil
	}
	return o, nil
}

// watchCards has NVIDIA's library look at devices.
func watchCards(devices []gpu.Info) (watcher, error) {
	m, err := mon.Open()
	if err != nil {
		return nil, err
	}
	return watchWith(m, devices)
}

// watchWith has a library that is open look at devices, until it is stopped.
func watchWith(m *mon.Monitor, devices []gpu.Info) (watcher, error) {
	w, err := m.Watch(devices)
	if err != nil {
		_ = m.Close() // why it does not look is what matters
		return nil, err
	}
	return &cards{w, m}, nil
}

// cards are devices that are looked at, with the library.
type cards struct {
	*mon.Watch
	m *mon.Monitor
}

// Stop ends the watch.
func (c *cards) Stop() ([]mon.State, []mon.Finding) {
	found := c.Watch.Stop()
	_ = c.m.Close() // what it has told is told
	return c.After, found
}
