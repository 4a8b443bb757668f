//go:build sim

package harness

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// All arguments of the driver's functions are integers or pointers, so one type of
// function does for all.
static int call(void *f, uint64_t *a) {
	typedef int (*fn)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
	return ((fn)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}
static const char *text(void *f) { return ((const char *(*)(void))f)(); }
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// Lib is a loaded driver.
type Lib struct {
	handle unsafe.Pointer
	mu     sync.Mutex
	found  map[string]unsafe.Pointer
}

// Open loads the library.
func Open(path string) (*Lib, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	h := C.dlopen(p, C.RTLD_NOW|C.RTLD_LOCAL)
	if h == nil {
		return nil, fmt.Errorf("load %s: %s", path, C.GoString(C.dlerror()))
	}
	return &Lib{handle: h, found: map[string]unsafe.Pointer{}}, nil
}

// Has reports whether the library exports a function.
func (l *Lib) Has(name string) bool { return l.symbol(name) != nil }

func (l *Lib) symbol(name string) unsafe.Pointer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, ok := l.found[name]; ok {
		return f
	}
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	f := C.dlsym(l.handle, n)
	l.found[name] = f
	return f
}

// Call calls a function and returns its CUresult. Pointers must be of memory that Alloc
// gave.
func (l *Lib) Call(name string, args ...uint64) int {
	f := l.symbol(name)
	if f == nil {
		return -1
	}
	var a [11]C.uint64_t
	for i, v := range args {
		a[i] = C.uint64_t(v)
	}
	return int(C.call(f, &a[0]))
}

// Text calls a function without arguments that returns a text.
func (l *Lib) Text(name string) string {
	f := l.symbol(name)
	if f == nil {
		return ""
	}
	return C.GoString(C.text(f))
}

// Alloc gives zeroed memory that no collector moves, as an address and as a slice.
func Alloc(n int) (uint64, []byte) {
	p := C.calloc(1, C.size_t(max(n, 1)))
	return uint64(uintptr(p)), unsafe.Slice((*byte)(p), n)
}

// Bytes is memory of the host that the driver gave.
func Bytes(p uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// Free frees what Alloc gave.
func Free(p uint64) { C.free(*(*unsafe.Pointer)(unsafe.Pointer(&p))) }
