//go:build cuda

package cuda

import (
	"fmt"
	"io/fs"
	"sync"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Backend runs the canonical kernels on one device, in one stream. Several goroutines may
// use it at once as long as they write different tensors. It must be closed.
type Backend struct {
	dev     *gpu.Device
	stream  *gpu.Stream
	modules []*gpu.Module
	staging *staging

	mu       sync.Mutex // guards what is below
	routines map[string]*routine
	names    []string // of the routines, in the order of the PTX
	params   gpu.Params
	queue    queue
	fixed    arena
	scratch  *gpu.Buffer
	sums     ledger
	peers    map[*gpu.Device]bool // whether their memory is reachable
	fault    error
	waits    uint64

	lostMu sync.Mutex
	lost   []*gpu.Buffer // of buffers that nobody has any more
}

var (
	_ kernels.Backend = (*Backend)(nil)
	_ kernels.Tallier = (*Backend)(nil)
	_ kernels.Stager  = (*Backend)(nil)
	_ kernels.Batcher = (*Backend)(nil)
	_ kernels.Located = (*Backend)(nil)
	_ kernels.Waiter  = (*Backend)(nil)
)

// New opens a backend on a device: the driver compiles the kernels for it.
func New(d *gpu.Device) (*Backend, error) {
	files, err := fs.Sub(shipped, "ptx")
	if err != nil {
		return nil, err
	}
	return NewOf(d, files)
}

// NewOf is New with other PTX of the same kernels than what ships.
func NewOf(d *gpu.Device, ptx fs.FS) (*Backend, error) {
	b := &Backend{dev: d, staging: newStaging(d), routines: map[string]*routine{}, peers: map[*gpu.Device]bool{}}
	if err := b.open(ptx); err != nil {
		return nil, gpu.Join(err, b.Close())
	}
	return b, nil
}

func (b *Backend) open(ptx fs.FS) (err error) {
	if b.stream, err = b.dev.NewStream(); err != nil {
		return err
	}
	if err := b.sums.open(b.dev, b.stream); err != nil {
		return err
	}
	if err := b.fixed.open(b.dev, arenaSize); err != nil {
		return err
	}
	return b.load(ptx)
}

// Close waits for the device and frees what the backend has there but for the buffers that
// were not freed.
func (b *Backend) Close() error {
	b.enter()
	defer b.mu.Unlock()
	var errs []error
	if b.stream != nil {
		errs = append(errs, b.stream.Close())
	}
	for _, m := range b.modules {
		errs = append(errs, m.Close())
	}
	if b.scratch != nil {
		errs = append(errs, b.scratch.Free())
	}
	b.stream, b.modules, b.scratch = nil, nil, nil
	return gpu.Join(append(errs, b.sums.close(), b.fixed.close())...)
}

// Device is where the backend computes.
func (b *Backend) Device() *gpu.Device { return b.dev }

// On implements kernels.Located.
func (b *Backend) On() kernels.Device {
	i := &b.dev.Info
	return kernels.Device{Index: i.Index, Name: i.Name, UUID: i.UUID, PCI: i.PCI, Simulated: i.Simulated}
}

// Spare implements kernels.Located.
func (b *Backend) Spare() (uint64, error) {
	free, _, err := b.dev.MemInfo()
	return free, err
}

// Name is "cuda-" and the architecture of the device, and says so where it is simulated.
func (b *Backend) Name() string {
	name := fmt.Sprintf("cuda-sm_%d%d", b.dev.Major, b.dev.Minor)
	if b.dev.Simulated {
		name += "-" + kernels.SimulatedMark
	}
	return name
}

// Waits implements kernels.Waiter.
func (b *Backend) Waits() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waits
}

// Sync waits for all earlier kernels and returns the first fault.
func (b *Backend) Sync() error {
	b.enter()
	defer b.mu.Unlock()
	return b.sync()
}

func (b *Backend) sync() error {
	b.waits++
	b.note(b.stream.Sync())
	return b.fault
}

// note keeps the first fault: what comes after it is not to be trusted.
func (b *Backend) note(err error) {
	if b.fault == nil && err != nil {
		b.fault = err
	}
}
