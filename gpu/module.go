//go:build cuda

package gpu

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Module is compiled PTX on a device.
type Module struct {
	dev     *Device
	m       cu.Module
	entries []entry
}

// logSize is what is kept of the PTX compiler's log.
const logSize = 16 << 10

// Load compiles PTX for the device. An error has the compiler's log.
func (d *Device) Load(ptx string) (*Module, error) {
	entries, err := entriesOf(ptx)
	if err != nil {
		return nil, d.fail(err, "load of PTX")
	}
	m := &Module{dev: d, entries: entries}
	log := &cu.JITErrorLogBuffer{Buffer: make([]byte, logSize)}
	err = d.in(func() (err error) {
		m.m, err = cu.LoadDataEx(ptx, log)
		return err
	})
	runtime.KeepAlive(log) // the driver has its address as a number
	if err != nil {
		text, _, _ := bytes.Cut(log.Buffer, []byte{0})
		return nil, &Error{Op: "cuModuleLoadDataEx", Device: d.Info, Log: strings.TrimSpace(string(text)), Err: resultOf(err)}
	}
	d.live.modules.Add(1)
	return m, nil
}

// Close takes the module and its kernels off the device. It is called once.
func (m *Module) Close() error {
	m.dev.live.modules.Add(-1)
	return m.dev.fail(m.dev.in(m.m.Unload), "cuModuleUnload")
}

// Kernels are the names of the module's kernels, in the order of the PTX.
func (m *Module) Kernels() (names []string) {
	for _, e := range m.entries {
		names = append(names, e.name)
	}
	return names
}

// Kernel is a kernel of a module.
type Kernel struct {
	dev *Device
	entry
	f drv.Function
}

// Kernel gives the kernel of that name.
func (m *Module) Kernel(name string) (*Kernel, error) {
	i := slices.IndexFunc(m.entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return nil, m.dev.fail(NotFound, "cuModuleGetFunction of %s", name)
	}
	var f cu.Function
	err := m.dev.in(func() (err error) {
		f, err = m.m.Function(name)
		return err
	})
	if err != nil {
		return nil, m.dev.fail(err, "cuModuleGetFunction of %s", name)
	}
	return &Kernel{m.dev, m.entries[i], drv.Function(handle(f))}, nil
}

// Name is the kernel's name in the module.
func (k *Kernel) Name() string { return k.name }

// Threads is how many threads a block may have by the kernel's .maxntid; 0 where it has none.
func (k *Kernel) Threads() int { return k.threads }

// Resources says what a kernel needs: of registers and bytes of local memory per thread,
// and of bytes of shared memory per block, besides what a launch asks for.
type Resources struct{ Registers, Local, Shared, MaxThreads int }

// Resources asks the driver.
func (k *Kernel) Resources() (r Resources, err error) {
	for _, a := range []struct {
		into *int
		attr drv.Attribute
	}{{&r.Registers, drv.Registers}, {&r.Local, drv.Local}, {&r.Shared, drv.Shared}, {&r.MaxThreads, drv.MaxThreads}} {
		if *a.into, err = drv.FunctionGet(k.dev.ctx, k.f, a.attr); err != nil {
			return r, k.dev.fail(err, "cuFuncGetAttribute %d of %s", int(a.attr), k.name)
		}
	}
	return r, nil
}

// AllowShared lets launches ask for up to that many bytes of dynamic shared memory. Without
// it they have 48 KB, less what the kernel declares.
func (k *Kernel) AllowShared(bytes int) error {
	err := error(InvalidValue)
	if fits(bytes) {
		err = drv.FunctionSet(k.dev.ctx, k.f, drv.MaxShared, bytes)
	}
	return k.dev.fail(err, "cuFuncSetAttribute of %s to %d bytes of shared memory", k.name, bytes)
}

// Occupancy is how many blocks of that many threads, with that much dynamic shared memory,
// run on a multiprocessor at once.
func (k *Kernel) Occupancy(threads, shared int) (int, error) {
	n, err := 0, error(InvalidValue)
	if fits(threads, shared) && threads > 0 {
		n, err = drv.Occupancy(k.dev.ctx, k.f, threads, shared)
	}
	return n, k.dev.fail(err, "cuOccupancyMaxActiveBlocksPerMultiprocessor of %s, %d threads, %d bytes of shared memory", k.name, threads, shared)
}

// Dim is a size in up to three dimensions; 0 counts as 1.
type Dim struct{ X, Y, Z int }

// String writes the size as 4x2x1.
func (d Dim) String() string { return fmt.Sprintf("%dx%dx%d", max(d.X, 1), max(d.Y, 1), max(d.Z, 1)) }

func (d Dim) drv() drv.Dim {
	return drv.Dim{X: uint32(max(d.X, 1)), Y: uint32(max(d.Y, 1)), Z: uint32(max(d.Z, 1))}
}

// Launch gives a stream the kernel to run, with grid blocks of block threads and that many
// bytes of dynamic shared memory. The parameters are copied before it returns, p may then be
// used anew. It makes one call to the driver and allocates nothing.
func (k *Kernel) Launch(s *Stream, grid, block Dim, shared int, p *Params) error {
	err := k.check(s, grid, block, shared, p)
	if err == nil {
		err = drv.Launch(k.dev.ctx, k.f, s.h, grid.drv(), block.drv(), uint32(shared), p.bytes)
	}
	if err == nil {
		return nil
	}
	return k.dev.fail(err, "launch of %s, %s blocks of %s threads, %d bytes of shared memory", k.name, grid, block, shared)
}

// fits reports whether the driver's types have all of some numbers: what they cut off could
// make one that it takes.
func fits(numbers ...int) bool {
	for _, n := range numbers {
		if n < 0 || n > math.MaxInt32 {
			return false
		}
	}
	return true
}

// check finds what the driver would not, or not by name.
func (k *Kernel) check(s *Stream, grid, block Dim, shared int, p *Params) error {
	if !s.dev.same(k.dev) {
		return fmt.Errorf("the stream is of %s", s.dev)
	}
	if !fits(grid.X, grid.Y, grid.Z, block.X, block.Y, block.Z, shared) {
		return InvalidValue
	}
	if len(p.bytes) != k.params {
		return fmt.Errorf("%d bytes of parameters, the kernel has %d", len(p.bytes), k.params)
	}
	return nil
}
