//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Backend runs the canonical kernels on one device, in one stream. Several goroutines may
// use it at once as long as they write different tensors. It must be closed.
type Backend struct {
	dev     *gpu.Device
	stream  *gpu.Stream
	modules []*gpu.Module
	staging *ref.Backend[float32]

	mu       sync.Mutex // guards what is below
	routines map[string]*routine
	names    []string // of the routines, in the order of the PTX
	params   gpu.Params
	fixed    arena
	scratch  *gpu.Buffer
	sums     *gpu.Buffer          // what kernels add integers to
	found    []uint64             // and what was read of it
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
	b := &Backend{dev: d, staging: ref.New[float32](), routines: map[string]*routine{}, peers: map[*gpu.Device]bool{}, found: make([]uint64, 2*bins)}
	if err := b.open(ptx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Backend) open(ptx fs.FS) (err error) {
	if b.stream, err = b.dev.NewStream(); err != nil {
		return err
	}
	if b.sums, err = b.dev.Alloc(8 * len(b.found)); err != nil {
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
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	if b.stream != nil {
		errs = append(errs, b.stream.Close())
	}
	for _, m := range b.modules {
		errs = append(errs, m.Close())
	}
	for _, x := range []*gpu.Buffer{b.scratch, b.sums} {
		if x != nil {
			errs = append(errs, x.Free())
		}
	}
	b.stream, b.modules, b.scratch, b.sums = nil, nil, nil, nil
	return errors.Join(append(errs, b.fixed.close())...)
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

// Parts implements kernels.Located.
func (b *Backend) Parts() int { return b.dev.Multiprocessors }

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
	b.mu.Lock()
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
