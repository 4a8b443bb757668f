//go:build mpi

package mpi

/*
#include <mpi.h>
#include <stdlib.h>

enum { slot_bytes = 128 << 10 };

// slot is room for one message, and by what MPI knows it while it is under way.
typedef struct {
	MPI_Request request;
	char data[slot_bytes];
} slot;

static slot *slot_new(void) {
	slot *s = malloc(sizeof *s);
	if (s) s->request = MPI_REQUEST_NULL;
	return s;
}

static int slot_send(slot *s, int n, int process, int tag) {
	return MPI_Isend(s->data, n, MPI_BYTE, process, tag, MPI_COMM_WORLD, &s->request);
}

static int slot_receive(slot *s, int process, int tag) {
	return MPI_Irecv(s->data, slot_bytes, MPI_BYTE, process, tag, MPI_COMM_WORLD, &s->request);
}

// slot_test is the length of a message that is over, -1 where it is under way, and else
// an error below that.
static long slot_test(slot *s) {
	int over = 0, n = 0;
	MPI_Status status;
	int err = MPI_Test(&s->request, &over, &status);
	if (err == MPI_SUCCESS && over) err = MPI_Get_count(&status, MPI_BYTE, &n);
	if (err != MPI_SUCCESS) return -1 - (long)err;
	return over ? n : -1;
}

// sums is a reduction over all processes, and by what MPI knows it while it is under way.
typedef struct { MPI_Request request; } sums;

static sums *sums_new(void) {
	sums *s = malloc(sizeof *s);
	if (s) s->request = MPI_REQUEST_NULL;
	return s;
}

static int sums_begin(sums *s, MPI_Comm *comm, float *data, int n, int largest) {
	return MPI_Iallreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, largest ? MPI_MAX : MPI_SUM, *comm, &s->request);
}

static int sums_test(sums *s, int *over) { return MPI_Test(&s->request, over, MPI_STATUS_IGNORE); }

static MPI_Comm *comm_new(int *err) {
	MPI_Comm *c = malloc(sizeof *c);
	if (c && (*err = MPI_Comm_dup(MPI_COMM_WORLD, c)) == MPI_SUCCESS)
		*err = MPI_Comm_set_errhandler(*c, MPI_ERRORS_RETURN);
	return c;
}

// room may fail, which cgo's own malloc does not.
static float *room(size_t n) { return malloc(n * sizeof(float)); }

// begin initialises MPI on this thread, whose errors are from then on its callers'.
static int begin(int *level, int *process, int *size, int *tags) {
	int err, known = 0, *ub = NULL;
	if ((err = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, level))) return err;
	if ((err = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN))) return err;
	if ((err = MPI_Comm_rank(MPI_COMM_WORLD, process))) return err;
	if ((err = MPI_Comm_size(MPI_COMM_WORLD, size))) return err;
	if ((err = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &known))) return err;
	*tags = known ? *ub : 32767;
	return MPI_SUCCESS;
}

// go_on lets MPI do what it has to do.
static int go_on(void) {
	int come;
	return MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &come, MPI_STATUS_IGNORE);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// slotBytes is the longest message.
const slotBytes = C.slot_bytes

// slot is room for one message.
type slot struct {
	p    *Process
	c    *C.slot
	data []byte
}

// newSlot allocates a slot.
func (p *Process) newSlot() (*slot, error) {
	c := C.slot_new()
	if c == nil {
		return nil, fmt.Errorf("mpi: no memory for a message of %d bytes", slotBytes)
	}
	return &slot{p, c, unsafe.Slice((*byte)(unsafe.Pointer(&c.data[0])), slotBytes)}, nil
}

// free is the end of a slot that no message uses.
func (s *slot) free() { C.free(unsafe.Pointer(s.c)) }

// send begins to send the first n bytes.
func (s *slot) send(n int, to address) error {
	return s.p.call("MPI_Isend", func() C.int { return C.slot_send(s.c, C.int(n), C.int(to.process), C.int(to.tag)) })
}

// receive begins to receive a message.
func (s *slot) receive(from address) error {
	return s.p.call("MPI_Irecv", func() C.int { return C.slot_receive(s.c, C.int(from.process), C.int(from.tag)) })
}

// test reports whether the message is over, and of one that has come its length.
func (s *slot) test() (n int, over bool, err error) {
	err = s.p.call("MPI_Test", func() C.int {
		k := C.slot_test(s.c)
		if k < -1 {
			return C.int(-1 - k)
		}
		n, over = int(k), k >= 0
		return C.MPI_SUCCESS
	})
	return n, over, err
}

// goOn lets MPI do what it has to do.
func (p *Process) goOn() error { return p.call("MPI_Iprobe", func() C.int { return C.go_on() }) }

// world is a communicator of all processes, of which one group at a time makes use.
type world struct{ c *C.MPI_Comm }

// newWorld makes one, which all processes do, in one order. It blocks.
func newWorld() (world, error) {
	var code C.int
	c := C.comm_new(&code)
	if c == nil {
		return world{}, errors.New("mpi: no memory for a communicator")
	}
	return world{c}, failed("MPI_Comm_dup", code)
}

// reduction is one after the other, over a communicator, with memory for that.
type reduction struct {
	p    *Process
	over world
	c    *C.sums
	data []float32
}

// newReduction allocates one.
func (p *Process) newReduction(over world) (*reduction, error) {
	c := C.sums_new()
	if c == nil {
		return nil, errors.New("mpi: no memory for a reduction")
	}
	return &reduction{p: p, over: over, c: c}, nil
}

// room makes data n elements long, whatever they are.
func (r *reduction) room(n int) error {
	if cap(r.data) >= n {
		r.data = r.data[:n]
		return nil
	}
	r.drop()
	at := C.room(C.size_t(n))
	if at == nil {
		return fmt.Errorf("mpi: no memory for %d elements", n)
	}
	r.data = unsafe.Slice((*float32)(unsafe.Pointer(at)), n)
	return nil
}

// drop frees data.
func (r *reduction) drop() {
	C.free(unsafe.Pointer(unsafe.SliceData(r.data)))
	r.data = nil
}

// begin begins to reduce data.
func (r *reduction) begin(largest bool) error {
	return r.p.call("MPI_Iallreduce", func() C.int {
		which := C.int(0)
		if largest {
			which = 1
		}
		return C.sums_begin(r.c, r.over.c, (*C.float)(unsafe.SliceData(r.data)), C.int(len(r.data)), which)
	})
}

// test reports whether data is reduced.
func (r *reduction) test() (over bool, err error) {
	var done C.int
	err = r.p.call("MPI_Test", func() C.int { return C.sums_test(r.c, &done) })
	return done != 0, err
}

// free frees the memory of what is not under way.
func (r *reduction) free() {
	r.drop()
	C.free(unsafe.Pointer(r.c))
}

// errOver is of calls after the end.
var errOver = errors.New("mpi: this process has left MPI")

// call calls MPI, unless this process has left it.
func (p *Process) call(what string, f func() C.int) error {
	p.calls.RLock()
	defer p.calls.RUnlock()
	if p.over {
		return errOver
	}
	return failed(what, f())
}

// failed is the error that a call gave, nil where it gave none.
func failed(what string, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	var text [C.MPI_MAX_ERROR_STRING]C.char
	var n C.int
	if C.MPI_Error_string(code, &text[0], &n) != C.MPI_SUCCESS {
		return fmt.Errorf("mpi: %s: error %d", what, code)
	}
	return fmt.Errorf("mpi: %s: %s", what, C.GoStringN(&text[0], n))
}

// begin initialises MPI on this thread.
func (p *Process) begin() error {
	var level, process, size, tags C.int
	if err := failed("MPI_Init_thread", C.begin(&level, &process, &size, &tags)); err != nil {
		return err
	}
	p.process, p.size, p.tags = int(process), int(size), int(tags)
	err := threads(int(level))
	for i := 0; i < reducers && err == nil; i++ {
		p.comms[i], err = newWorld()
		p.free = append(p.free, i)
	}
	return err
}

// threads refuses an MPI that does not let every thread call it at any time, as ranks
// and their queues do.
func threads(level int) error {
	names := map[int]string{C.MPI_THREAD_SINGLE: "MPI_THREAD_SINGLE", C.MPI_THREAD_FUNNELED: "MPI_THREAD_FUNNELED", C.MPI_THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED"}
	if name, less := names[level]; less {
		return fmt.Errorf("mpi: this MPI gives %s, and must give MPI_THREAD_MULTIPLE: build it with threads", name)
	}
	return nil
}

// finish is the end of MPI on this thread.
func finish() error { return failed("MPI_Finalize", C.MPI_Finalize()) }
