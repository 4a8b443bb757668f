//go:build cuda

package drv

// #include <stdlib.h>
// #include "calls.h"
// #cgo noescape drv_launch
// #cgo nocallback drv_launch
// #cgo noescape drv_upload
// #cgo nocallback drv_upload
// #cgo noescape drv_download
// #cgo nocallback drv_download
// #cgo noescape drv_function_get
// #cgo noescape drv_occupancy
// #cgo noescape drv_host_alloc
// #cgo noescape drv_uuid
// #cgo noescape drv_pci
// #cgo noescape drv_current
import "C"
import "unsafe"

// Handles of the driver, which are pointers of its own.
type (
	Context  unsafe.Pointer
	Stream   unsafe.Pointer
	Event    unsafe.Pointer
	Function unsafe.Pointer
)

// Dim is a size in three dimensions.
type Dim struct{ X, Y, Z uint32 }

func context(c Context) C.CUcontext { return C.CUcontext(unsafe.Pointer(c)) }
func stream(s Stream) C.CUstream    { return C.CUstream(unsafe.Pointer(s)) }
func event(e Event) C.CUevent       { return C.CUevent(unsafe.Pointer(e)) }
func function(f Function) C.CUfunction {
	return C.CUfunction(unsafe.Pointer(f))
}

func result(r C.int) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Result(r)
}

// Use makes a context current for what the calling thread does next; the goroutine must be
// locked to it.
func Use(c Context) error { return result(C.drv_use(context(c))) }

// Forget tells all threads that a context is gone, and may come again where it was.
func Forget() { C.drv_forget() }

// Current is the context that the driver takes for the calling thread's.
func Current() (Context, error) {
	var c C.CUcontext
	err := result(C.drv_current(&c))
	return Context(unsafe.Pointer(c)), err
}

// Launch puts a kernel into a stream. params are its parameters, packed as the kernel
// declares them; they are used before Launch returns.
func Launch(c Context, f Function, s Stream, grid, block Dim, shared uint32, params []byte) error {
	return result(C.drv_launch(context(c), function(f), stream(s),
		C.drv_dim{C.uint(grid.X), C.uint(grid.Y), C.uint(grid.Z)}, C.drv_dim{C.uint(block.X), C.uint(block.Y), C.uint(block.Z)},
		C.uint(shared), unsafe.Pointer(unsafe.SliceData(params)), C.size_t(len(params))))
}

// Upload copies memory of Go to the device, after what is in the stream. It waits.
func Upload(c Context, dst uint64, src []byte, s Stream) error {
	return result(C.drv_upload(context(c), C.CUdeviceptr(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), stream(s), 1))
}

// UploadPinned copies memory of HostAlloc to the device, in the stream.
func UploadPinned(c Context, dst uint64, src unsafe.Pointer, n int, s Stream) error {
	return result(C.drv_upload(context(c), C.CUdeviceptr(dst), src, C.size_t(n), stream(s), 0))
}

// Download copies from the device to memory of Go, after what is in the stream. It waits.
func Download(c Context, dst []byte, src uint64, s Stream) error {
	return result(C.drv_download(context(c), unsafe.Pointer(unsafe.SliceData(dst)), C.CUdeviceptr(src), C.size_t(len(dst)), stream(s), 1))
}

// DownloadPinned copies from the device to memory of HostAlloc, in the stream.
func DownloadPinned(c Context, dst unsafe.Pointer, src uint64, n int, s Stream) error {
	return result(C.drv_download(context(c), dst, C.CUdeviceptr(src), C.size_t(n), stream(s), 0))
}

// Copy copies within a device, in the stream.
func Copy(c Context, dst, src uint64, n int, s Stream) error {
	return result(C.drv_copy(context(c), C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n), stream(s)))
}

// CopyPeer copies from one context's device to another's, in a stream of c.
func CopyPeer(c Context, dst uint64, to Context, src uint64, from Context, n int, s Stream) error {
	return result(C.drv_copy_peer(context(c), C.CUdeviceptr(dst), context(to), C.CUdeviceptr(src), context(from), C.size_t(n), stream(s)))
}

// Fill8 sets n bytes to v, in the stream.
func Fill8(c Context, dst uint64, v byte, n int, s Stream) error {
	return result(C.drv_fill8(context(c), C.CUdeviceptr(dst), C.uchar(v), C.size_t(n), stream(s)))
}

// Fill32 sets n words of 4 bytes to v, in the stream.
func Fill32(c Context, dst uint64, v uint32, n int, s Stream) error {
	return result(C.drv_fill32(context(c), C.CUdeviceptr(dst), C.uint(v), C.size_t(n), stream(s)))
}

// HostAlloc gives memory of the host that every device of the process copies from and to
// by itself.
func HostAlloc(c Context, n int) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := result(C.drv_host_alloc(context(c), &p, C.size_t(n)))
	return p, err
}

// HostFree frees memory of HostAlloc.
func HostFree(c Context, p unsafe.Pointer) error { return result(C.drv_host_free(context(c), p)) }

// StreamSync waits for all that is in the stream.
func StreamSync(c Context, s Stream) error { return result(C.drv_stream_sync(context(c), stream(s))) }

// StreamQuery is NotReady while something is in the stream.
func StreamQuery(c Context, s Stream) error {
	return result(C.drv_stream_query(context(c), stream(s)))
}

// StreamWait lets what comes next in the stream wait for the event.
func StreamWait(c Context, s Stream, e Event) error {
	return result(C.drv_stream_wait(context(c), stream(s), event(e)))
}

// EventRecord lets the event happen after what is in the stream.
func EventRecord(c Context, e Event, s Stream) error {
	return result(C.drv_event_record(context(c), event(e), stream(s)))
}

// EventSync waits for the event.
func EventSync(c Context, e Event) error { return result(C.drv_event_sync(context(c), event(e))) }

// EventQuery is NotReady until the event has happened.
func EventQuery(c Context, e Event) error { return result(C.drv_event_query(context(c), event(e))) }

// Sync waits for all that the context has to do.
func Sync(c Context) error { return result(C.drv_sync(context(c))) }

// EnablePeer lets kernels of c use memory of another context's device.
func EnablePeer(c, peer Context) error { return result(C.drv_enable_peer(context(c), context(peer))) }

// Attribute is a property of a kernel.
type Attribute int

// The properties of kernels that this program asks for.
const (
	MaxThreads Attribute = C.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
	Shared     Attribute = C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
	Local      Attribute = C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
	Registers  Attribute = C.CU_FUNC_ATTRIBUTE_NUM_REGS
	MaxShared  Attribute = C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
)

// FunctionGet is a property of a kernel.
func FunctionGet(c Context, f Function, a Attribute) (int, error) {
	var v C.int
	err := result(C.drv_function_get(context(c), function(f), C.int(a), &v))
	return int(v), err
}

// FunctionSet changes a property of a kernel.
func FunctionSet(c Context, f Function, a Attribute, v int) error {
	return result(C.drv_function_set(context(c), function(f), C.int(a), C.int(v)))
}

// Occupancy is how many blocks of that size run on a multiprocessor at once.
func Occupancy(c Context, f Function, block, shared int) (int, error) {
	var n C.int
	err := result(C.drv_occupancy(context(c), function(f), C.int(block), C.size_t(shared), &n))
	return int(n), err
}

// UUID is the identity of a device.
func UUID(device int) (u [16]byte, err error) {
	err = result(C.drv_uuid(C.int(device), (*C.char)(unsafe.Pointer(&u))))
	return u, err
}

// PCI is the address of a device, as "00000000:1B:00.0".
func PCI(device int) (string, error) {
	const size = 32
	p := (*C.char)(C.calloc(size, 1))
	defer C.free(unsafe.Pointer(p))
	err := result(C.drv_pci(C.int(device), p, size))
	return C.GoString(p), err
}
