//go:build cuda

// Package drv reaches the CUDA driver. It has three parts. Trampolines stand for every
// function of the driver that gorgonia.org/cu and this package call, and find it in the
// library that Open opened: so one program starts without a driver, runs with one, and with
// the simulator. calls.c has what gorgonia.org/cu lacks or does by more than one call, each
// in a context that it is given. And results have words.
package drv

// #cgo CFLAGS: -I${SRCDIR}/include -fvisibility=hidden
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "lazy.h"
import "C"
import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Result is what a function of the driver returned, other than success.
type Result int

// The results that this program tells from others.
const (
	InvalidValue   Result = C.CUDA_ERROR_INVALID_VALUE
	OutOfMemory    Result = C.CUDA_ERROR_OUT_OF_MEMORY
	NoDevice       Result = C.CUDA_ERROR_NO_DEVICE
	InvalidContext Result = C.CUDA_ERROR_INVALID_CONTEXT
	InvalidHandle  Result = C.CUDA_ERROR_INVALID_HANDLE
	NotFound       Result = C.CUDA_ERROR_NOT_FOUND
	NotReady       Result = C.CUDA_ERROR_NOT_READY
	NotSupported   Result = C.CUDA_ERROR_NOT_SUPPORTED
)

// Error says what r means.
func (r Result) Error() string {
	if s, ok := meanings[r]; ok {
		return s
	}
	return fmt.Sprintf("result %d, which this program does not know", int(r))
}

// Lasts reports whether a result is a fault that stays with its context: whatever is called
// from then on answers with it.
func (r Result) Lasts() bool {
	switch r {
	case C.CUDA_ERROR_ECC_UNCORRECTABLE, C.CUDA_ERROR_ILLEGAL_ADDRESS, C.CUDA_ERROR_LAUNCH_TIMEOUT, C.CUDA_ERROR_ASSERT, C.CUDA_ERROR_HARDWARE_STACK_ERROR,
		C.CUDA_ERROR_ILLEGAL_INSTRUCTION, C.CUDA_ERROR_MISALIGNED_ADDRESS, C.CUDA_ERROR_INVALID_ADDRESS_SPACE, C.CUDA_ERROR_INVALID_PC, C.CUDA_ERROR_LAUNCH_FAILED:
		return true
	}
	return false
}

// State is what became of opening a library.
type State int

// What becomes of opening a library. The zero value is success.
const (
	Opened        State = C.DRV_OPEN
	NoLibrary     State = C.DRV_NO_LIBRARY      // it cannot be loaded
	IsSimulator   State = C.DRV_IS_SIMULATOR    // it is a simulator, and a driver was asked for
	NoSimulator   State = C.DRV_NO_SIMULATOR    // it is not, and a simulator was asked for
	InitFailed    State = C.DRV_INIT_FAILED     // its cuInit failed
	OtherIsOpened State = C.DRV_INIT_FAILED + 1 // another is open, and a process has one
)

// OpenError says why a library is not open.
type OpenError struct {
	State State
	Path  string
	Why   string // of the loader, of a simulator that does not start, or the library that is open
	Init  Result // of cuInit
}

// Error says it in words.
func (e *OpenError) Error() string {
	switch e.State {
	case NoLibrary:
		return "cannot be loaded: " + e.Why
	case IsSimulator:
		return e.Path + " is a simulator"
	case NoSimulator:
		return e.Path + " is no simulator of this version"
	case InitFailed:
		if e.Why != "" {
			return e.Path + ": " + e.Why
		}
		return e.Path + ": cuInit: " + e.Init.Error()
	}
	return "this process runs with " + e.Why
}

// Findings is what the simulator that is open found wrong so far, one finding a line. It is
// empty without a simulator.
func Findings() string {
	runtime.LockOSThread() // the text is the thread's
	defer runtime.UnlockOSThread()
	return C.GoString(C.drv_findings())
}

// opened is the library that this process runs with; there is one, as its functions are
// found once.
var opened struct {
	sync.Mutex
	path    string
	devices int
}

// Open opens a library and starts it: a driver where devices is 0, else a simulator with
// that many. Opened already, it is open.
func Open(path string, devices int) error {
	opened.Lock()
	defer opened.Unlock()
	if opened.path != "" {
		if opened.path != path || opened.devices != devices {
			return &OpenError{State: OtherIsOpened, Path: path, Why: opened.path}
		}
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	const size = 1 << 10
	why := (*C.char)(C.calloc(size, 1))
	defer C.free(unsafe.Pointer(why))
	var result C.int
	if state := State(C.drv_open(name, C.int(devices), &result, why, size)); state != Opened {
		return &OpenError{State: state, Path: path, Why: C.GoString(why), Init: Result(result)}
	}
	opened.path, opened.devices = path, devices
	return nil
}
