package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// call is one kernel, cut into parts. Each thread takes those of its own share
// first, so that what a kernel leaves in a core's caches is there for the next
// one, then those that others have not got to.
type call struct {
	run                 func(c *call, ws *workspace, part int) // a plain function: a closure would be allocated
	rowPath, columnPath path                                   // what is counted where rows, or elements, or columns are shared
	parts               int
	taken               []atomic.Int64              // by share
	done                sync.WaitGroup              // parts
	ended               atomic.Int64                // parts: a hint when to look at done
	refs                atomic.Int32                // the caller, and every place in the queue
	broken              atomic.Pointer[guard.Panic] // the first part that panicked
	b                   *Backend
	partial             []partial    // of calls that hold: what each part sums
	block               atomic.Int64 // of the parts of RMSNormGrad: the next to take
	turn                atomic.Int64 // and the one whose turn it is
	operands
}

// workspace is what one thread needs to compute a part.
type workspace struct {
	tile    tileArgs
	vec     vectorArgs
	hash    hashArgs
	squares squareArgs
	a, b    memory // packed operands
	c       memory // sums of groups
	steps   []step
	marks   marks
}

// memory is reusable scratch.
type memory struct{ data []float32 }

// take is n elements at a multiple of 64 bytes, of unknown content.
func (m *memory) take(n int) []float32 {
	if len(m.data) < n {
		x := make([]float32, n+16)
		skip := (64 - int(uintptr(unsafe.Pointer(unsafe.SliceData(x)))%64)) % 64 / 4
		m.data = x[skip : skip+n]
	}
	return m.data[:n]
}

// start makes the workers. They end when the backend is no longer used.
func (b *Backend) start() {
	if b.threads == 1 {
		return
	}
	b.jobs = make(chan *call, 2*b.threads)
	for thread := 1; thread < b.threads; thread++ {
		go work(b.jobs, thread)
	}
	runtime.AddCleanup(b, func(jobs chan *call) { close(jobs) }, b.jobs)
}

// linger is how long a thread looks for work, or for the end of a call, before it
// sleeps. To wake a sleeping thread takes 100 us, a sixth of a product of 512^3 on
// two threads, and a training step has the next call ready sooner.
const linger = 100 * time.Microsecond

func work(jobs chan *call, thread int) {
	ws := &workspace{}
	for {
		c, open := await(jobs)
		if !open {
			return
		}
		c.help(thread, ws)
		c.drop()
	}
}

// await is the next call, and false when there will be none. While it looks, it
// lets a goroutine run once that waits for this thread: the caller, perhaps.
func await(jobs chan *call) (c *call, open bool) {
	yielded := false
	for start := time.Now(); ; {
		select {
		case c, open = <-jobs:
			return c, open
		default:
		}
		waited := time.Since(start)
		if waited > linger {
			break
		}
		if !yielded && waited > linger/5 {
			runtime.Gosched()
			yielded = true
		}
	}
	c, open = <-jobs
	return c, open
}

// wait returns when all parts are done.
func (c *call) wait() {
	if c.ended.Load() < int64(c.parts) {
		for start := time.Now(); c.ended.Load() < int64(c.parts) && time.Since(start) < linger; {
		}
	}
	c.done.Wait()
}

// help computes parts until none is left.
func (c *call) help(thread int, ws *workspace) {
	i, found := c.take(thread)
	if !found {
		return
	}
	c.b.checkControl()
	for found {
		c.compute(ws, i)
		ws.marks.moveTo(&c.b.counts)
		if thread > 0 {
			c.b.counts.path(pathWorker)
		}
		c.done.Done()
		c.ended.Add(1)
		i, found = c.take(thread)
	}
}

// compute computes a part. A panic is the caller's, who gets it when no thread
// works on its tensors any more.
func (c *call) compute(ws *workspace, part int) {
	defer func() {
		if p := recover(); p != nil {
			c.broken.CompareAndSwap(nil, guard.Of(p))
		}
	}()
	c.run(c, ws, part)
}

// take is a part that nobody has taken yet, of the thread's own share if it can
// be.
func (c *call) take(thread int) (part int, found bool) {
	n := len(c.taken)
	for i := range n {
		t := (thread + i) % n
		part = t*c.parts/n + int(c.taken[t].Add(1)) - 1
		if part < (t+1)*c.parts/n {
			return part, true
		}
	}
	return 0, false
}

// partial is what one part of a call sums, in cache lines of its own. The caller adds
// all of them when the call has ended: no two threads ever write one number.
type partial struct {
	squares kernels.SquareSum
	digest  kernels.Digest
	count   int
	_       [48]byte
}

// sums dispatches by f a call that is held and gives what its parts have summed.
func (c *call) sums(f func(*call)) []partial {
	c.hold = true
	if c.partial == nil {
		c.partial = make([]partial, mostParts*c.b.threads)
	}
	f(c)
	return c.partial[:c.parts]
}

// newCall lends a call to be filled in; dispatch takes it back. The paths are
// for parts that are columns, and for all others.
func (b *Backend) newCall(run func(c *call, ws *workspace, part int), rows, columns path) *call {
	b.mu.Lock()
	var c *call
	if n := len(b.idle); n > 0 {
		c, b.idle = b.idle[n-1], b.idle[:n-1]
	}
	b.mu.Unlock()
	if c == nil {
		c = &call{taken: make([]atomic.Int64, b.threads)}
	}
	c.b, c.run, c.rowPath, c.columnPath = b, run, rows, columns
	return c
}

// dispatch runs all parts, on this thread and those that are free, and returns
// when they are done. Workers that come late find nothing left. A call that is
// held stays the caller's, who drops it. A panic of a part is dispatch's.
func (b *Backend) dispatch(c *call, parts int) {
	c.parts = parts
	if parts > 1 {
		p := c.rowPath
		if c.byColumns {
			p = c.columnPath
		}
		b.counts.path(p)
	}
	for t := range c.taken {
		c.taken[t].Store(0)
	}
	c.ended.Store(0)
	c.refs.Store(1)
	c.done.Add(parts)
	for range min(b.threads, parts) - 1 {
		c.refs.Add(1)
		select {
		case b.jobs <- c:
		default:
			c.refs.Add(-1)
		}
	}
	ws := b.lendWorkspace()
	c.help(0, ws)
	b.returnWorkspace(ws)
	c.wait()
	if p := c.broken.Swap(nil); p != nil {
		panic(p) // the call is not used again
	}
	if !c.hold {
		c.drop()
	}
}

// drop gives up one reference; the last one makes the call reusable.
func (c *call) drop() {
	if c.refs.Add(-1) > 0 {
		return
	}
	b := c.b
	c.b, c.operands = nil, operands{}
	b.mu.Lock()
	b.idle = append(b.idle, c)
	b.mu.Unlock()
}

func (b *Backend) lendWorkspace() *workspace {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.workspaces); n > 0 {
		ws := b.workspaces[n-1]
		b.workspaces = b.workspaces[:n-1]
		return ws
	}
	return &workspace{}
}

func (b *Backend) returnWorkspace(ws *workspace) {
	b.mu.Lock()
	b.workspaces = append(b.workspaces, ws)
	b.mu.Unlock()
}

// Bits of the floating-point control register: flush to zero, rounding mode,
// denormals are zero.
const (
	flushToZero      = 1 << 15
	roundingMode     = 3 << 13
	denormalsAreZero = 1 << 6
)

// checkControl records a fault if this thread rounds or flushes otherwise.
func (b *Backend) checkControl() {
	if m := b.isa.control(); m&(flushToZero|roundingMode|denormalsAreZero) != 0 {
		b.fail(fmt.Errorf("%s: a thread computes with MXCSR %#x: want round to nearest, subnormals kept", b.Name(), m))
	}
}

// fail keeps the first fault.
func (b *Backend) fail(err error) { b.fault.CompareAndSwap(nil, &err) }
