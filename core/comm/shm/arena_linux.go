package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/kernels"
)

const (
	// arenaBytes is how much fits into an arena: 64 GiB of addresses, or 256 MiB where
	// these are few. It takes memory only as it is used.
	arenaBytes = 1 << (28 + ^uint(0)>>63*8)
	// pageBytes is what allocations are multiples of.
	pageBytes = 64 << 10
	// leastTaken is the length of the shortest tensor that is worth pages of its own.
	leastTaken = pageBytes
	// leastPosted is the length of the shortest payload that is not copied: a shorter
	// one is sooner copied than waited for.
	leastPosted = 16 << 10
)

// arena is memory that other processes can read: that of tensors, which they then read
// where they lie.
type arena struct {
	fd    int    // to free pages by
	reads int    // a descriptor that nobody can write by
	mem   []byte // all of it
	mu    sync.Mutex
	free  []extent // by offset, none next to another
}

// extent is a part of an arena.
type extent struct{ at, bytes int }

func (x extent) end() int { return x.at + x.bytes }

// process is this process's arena, nil while there is none.
var process struct {
	sync.Mutex
	arena atomic.Pointer[arena]
}

// Memory is memory of this process that others read where it lies: the payloads that lie
// in it are not copied on links that are made from then on. It stays until the process
// ends, and takes what is allocated in it.
func Memory() (kernels.Pool, error) {
	process.Lock()
	defer process.Unlock()
	if a := process.arena.Load(); a != nil {
		return a, nil
	}
	a, err := newArena()
	if err != nil {
		return nil, fmt.Errorf("shm: memory that other processes can read: %w", err)
	}
	process.arena.Store(a)
	return a, nil
}

// newArena makes an empty one.
func newArena() (*arena, error) {
	fd, err := unix.MemfdCreate("lockstep memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	a := &arena{fd: fd, reads: -1, free: []extent{{0, arenaBytes}}}
	if err = unix.Ftruncate(fd, arenaBytes); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		a.reads, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		a.mem, err = unix.Mmap(fd, 0, arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d bytes: %w", arenaBytes, err), a.close())
	}
	_ = unix.Madvise(a.mem, unix.MADV_HUGEPAGE) // only faster
	return a, nil
}

// close ends it. Nobody may use what it held.
func (a *arena) close() (err error) {
	if a.mem != nil {
		err = unix.Munmap(a.mem)
	}
	if a.reads >= 0 {
		err = errors.Join(err, unix.Close(a.reads))
	}
	return errors.Join(err, unix.Close(a.fd))
}

// paged is how much n bytes take.
func paged(n int) int { return (n + pageBytes - 1) / pageBytes * pageBytes }

// Take implements kernels.Pool.
func (a *arena) Take(n int) []float32 {
	const element = int(unsafe.Sizeof(float32(0)))
	if n < leastTaken/element || n > arenaBytes/element {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	want := paged(n * element)
	i := slices.IndexFunc(a.free, func(x extent) bool { return x.bytes >= want })
	if i < 0 {
		return nil
	}
	at := a.free[i].at
	if a.free[i] = (extent{at + want, a.free[i].bytes - want}); a.free[i].bytes == 0 {
		a.free = slices.Delete(a.free, i, i+1)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&a.mem[at])), n)
}

// Give implements kernels.Pool: the memory is the system's again.
func (a *arena) Give(x []float32) {
	mine := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), int(unsafe.Sizeof(x[0]))*len(x))
	at, ok := a.offset(mine)
	if !ok || at%pageBytes != 0 {
		return
	}
	gone := extent{at, paged(len(mine))}
	if unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(gone.at), int64(gone.bytes)) != nil {
		clear(mine) // who takes it next finds zeros
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.free, gone, func(x, y extent) int { return x.at - y.at })
	if i < len(a.free) && a.free[i].at == gone.end() {
		gone.bytes += a.free[i].bytes
		a.free = slices.Delete(a.free, i, i+1)
	}
	if i > 0 && a.free[i-1].end() == gone.at {
		a.free[i-1].bytes += gone.bytes
		return
	}
	a.free = slices.Insert(a.free, i, gone)
}

// offset is where memory begins in the arena, if all of it is there.
func (a *arena) offset(b []byte) (at int, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	lo, p := uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if p < lo || p-lo > uintptr(len(a.mem)-len(b)) {
		return 0, false
	}
	return int(p - lo), true
}
