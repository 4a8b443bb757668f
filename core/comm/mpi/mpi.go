//go:build mpi

package mpi

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// Name is what reports call MPI.
const Name = "MPI"

// Process is this process in MPI's world. There is one at most: MPI is a process's.
type Process struct {
	process, size int // in MPI's world
	tags          int // the last one

	calls sync.RWMutex // held for reading by who calls MPI
	over  bool

	mu      sync.Mutex
	tag     int          // the last that was given
	taken   map[int]bool // tags
	retired []*slot      // of links that are closed, which MPI may use yet
	free    []int        // reducers, as the process of rank 0 knows

	comms [reducers]world

	end   chan struct{} // closed when MPI is to be left
	ended chan error    // then has how that went
}

// Open initialises MPI in a process of a world of so many, all of which must come: it
// returns when they have, and blocks until then.
func Open(size int) (*Process, error) {
	// Where UCX carries messages it would take over the signals by which Go's runtime
	// learns of a nil pointer.
	if _, set := os.LookupEnv("UCX_ERROR_SIGNALS"); !set {
		if err := os.Setenv("UCX_ERROR_SIGNALS", "SIGILL"); err != nil {
			return nil, err
		}
	}
	p := &Process{taken: map[int]bool{}, end: make(chan struct{}), ended: make(chan error, 1)}
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // MPI ends on the thread on which it began
		err := p.begin()
		begun <- err
		if err == nil {
			<-p.end
			p.ended <- finish()
		}
	}()
	if err := <-begun; err != nil {
		return nil, err
	}
	if p.size != size {
		return nil, fmt.Errorf("mpi: MPI's world has %d processes, want %d: has one mpirun started all of them, and of this MPI?", p.size, size)
	}
	go p.tend()
	return p, nil
}

// patience is how long other processes may take to leave MPI too.
const patience = 2 * time.Second

// Close leaves MPI, which all processes must do: one that waits for others in vain is
// given up. No link carries anything any more.
func (p *Process) Close() error {
	p.calls.Lock()
	over := p.over
	p.over = true
	p.calls.Unlock()
	if over {
		return nil
	}
	close(p.end)
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		return fmt.Errorf("mpi: other processes have not left MPI within %v", patience)
	}
}

// pace is how often MPI is called where nobody else does.
const pace = 5 * time.Millisecond

// tend calls MPI again and again: what a rank has left to go out, and no longer waits
// for, goes out only while somebody calls. It frees what closed links have left.
func (p *Process) tend() {
	for p.goOn() == nil {
		p.mu.Lock()
		left := p.retired[:0]
		for _, s := range p.retired {
			if _, over, err := s.test(); err == nil && over {
				s.free()
				continue
			}
			left = append(left, s)
		}
		clear(p.retired[len(left):])
		p.retired = left
		p.mu.Unlock()
		time.Sleep(pace)
	}
}

// address is where messages of a link go: a process, and a tag of its choice.
type address struct{ process, tag int }

// tagged gives a tag that no link of this process has. 0 is nobody's.
func (p *Process) tagged() (tag int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.tags {
		p.tag = p.tag%p.tags + 1
		if !p.taken[p.tag] {
			p.taken[p.tag] = true
			return p.tag, nil
		}
	}
	return 0, fmt.Errorf("mpi: all of %d tags are taken", p.tags)
}

// retire takes back what a link has used.
func (p *Process) retire(tag int, slots []*slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, tag)
	p.retired = append(p.retired, slots...)
}

// Way is a way by which ranks meet as by another one, and whose frames go by MPI.
func (p *Process) Way(w engine.Way) engine.Way {
	w.Name = Name
	w.Library = p
	w.Link = func(ctx context.Context, conn net.Conn, _ bool) (engine.Link, error) { return p.connect(ctx, conn, -1) }
	return w
}

// connect makes a link of a connection. Where mirror is a process, messages to this one
// go there, and it sends them on.
func (p *Process) connect(ctx context.Context, conn net.Conn, mirror int) (engine.Link, error) {
	tag, err := p.tagged()
	if err != nil {
		return nil, err
	}
	own := address{p.process, tag}
	if mirror >= 0 {
		own.process = mirror
	}
	l := &link{p: p}
	l.to, err = p.meet(ctx, conn, own)
	l.from = address{l.to.process, tag}
	if mirror >= 0 {
		l.from.process = mirror
	}
	if err == nil {
		err = l.open()
	}
	if err == nil {
		l.bell, err = engine.Socket(conn, nil)
	}
	if err != nil {
		l.retire()
		return nil, err
	}
	return l, nil
}

// meet tells the other side of a connection an address and gives that one's.
func (p *Process) meet(ctx context.Context, conn net.Conn, own address) (to address, err error) {
	until, _ := ctx.Deadline()
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], uint32(own.process))
	binary.LittleEndian.PutUint32(b[4:], uint32(own.tag))
	err = conn.SetDeadline(until)
	if err == nil {
		_, err = conn.Write(b[:])
	}
	if err == nil {
		_, err = io.ReadFull(conn, b[:])
	}
	if err = cmp.Or(err, conn.SetDeadline(time.Time{})); err != nil {
		return to, fmt.Errorf("mpi: where the other side is: %w", err)
	}
	to = address{int(binary.LittleEndian.Uint32(b[:])), int(binary.LittleEndian.Uint32(b[4:]))}
	if to.process >= p.size || to.tag < 1 || to.tag > p.tags {
		return to, fmt.Errorf("mpi: the other side is process %d with tag %d, must lie below %d and within 1-%d", to.process, to.tag, p.size, p.tags)
	}
	return to, nil
}

var _ engine.Polled = (*link)(nil)
