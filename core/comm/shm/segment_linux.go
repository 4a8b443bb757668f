package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segment is the memory of a link: a page of words, and two rings.
type segment struct {
	control []byte
	rings   [2]unsafe.Pointer // each mapped twice in a row
}

// seals are what nobody may do to a segment any more: to touch memory that was cut off
// ends a process.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newSegment makes a segment, and a descriptor to hand over.
func newSegment() (fd int, s *segment, err error) {
	fd, err = unix.MemfdCreate("lockstep link", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, segmentBytes); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		s, err = mapped(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, fmt.Errorf("segment of %d bytes: %w", segmentBytes, err)
	}
	return fd, s, nil
}

// mapped maps a segment that is of the right size and stays so.
func mapped(fd int) (*segment, error) {
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("what is no shared memory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if has&seals != seals || st.Size != segmentBytes {
		return nil, fmt.Errorf("shared memory of %d bytes with seals %#x: must have %d and %#x", st.Size, has, segmentBytes, seals)
	}
	s := &segment{}
	if s.control, err = unix.Mmap(fd, 0, controlBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	for i := range s.rings {
		if s.rings[i], err = twice(fd, controlBytes+int64(i)*RingBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("mmap: %w", err), s.close())
		}
	}
	return s, nil
}

// twice maps a ring two times in a row.
func twice(fd int, offset int64) (unsafe.Pointer, error) {
	// The place for both, then each in it.
	at, err := unix.MmapPtr(-1, 0, nil, 2*RingBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	for _, half := range []uintptr{0, RingBytes} {
		if _, err := unix.MmapPtr(fd, offset, unsafe.Add(at, half), RingBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			return nil, errors.Join(err, unix.MunmapPtr(at, 2*RingBytes))
		}
	}
	return at, nil
}

// ring is one of the two.
func (s *segment) ring(i int) ring {
	return ringOf(s.control[i*controlBytes/2:], unsafe.Slice((*byte)(s.rings[i]), 2*RingBytes))
}

// close ends the mapping. Nobody may use what it held.
func (s *segment) close() error {
	err := unix.Munmap(s.control)
	for i, at := range s.rings {
		if at != nil {
			err = errors.Join(err, unix.MunmapPtr(at, 2*RingBytes))
			s.rings[i] = nil
		}
	}
	return err
}

// offer makes the segment of a connection that this side has dialed.
func offer(ctx context.Context, conn *net.UnixConn) (*segment, error) {
	fd, s, err := newSegment()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = bounded(ctx, conn, func() error {
		if _, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err != nil {
			return fmt.Errorf("hand over shared memory: %w", err)
		}
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			return fmt.Errorf("shared memory was not taken: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// take is the other side of offer.
func take(ctx context.Context, conn *net.UnixConn) (s *segment, err error) {
	err = bounded(ctx, conn, func() error {
		fd, err := descriptor(conn)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if s, err = mapped(fd); err != nil {
			return err
		}
		_, err = conn.Write([]byte{1})
		return err
	})
	if err != nil && s != nil {
		err, s = errors.Join(err, s.close()), nil
	}
	return s, err
}

// descriptor receives the one that comes with a byte. Of several all are closed.
func descriptor(conn *net.UnixConn) (fd int, err error) {
	var b [1]byte
	oob := make([]byte, 256)
	n, oobn, flags, _, err := conn.ReadMsgUnix(b[:], oob)
	if err != nil {
		return -1, err
	}
	all, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	var fds []int
	for i := range all {
		more, err := unix.ParseUnixRights(&all[i])
		if err == nil {
			fds = append(fds, more...)
		}
	}
	if len(fds) == 1 && n == 1 && flags&unix.MSG_CTRUNC == 0 {
		return fds[0], nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd) // only to be rid of it
	}
	return -1, fmt.Errorf("%d descriptors came with %d bytes, want one", len(fds), n)
}

// bounded does what has the time that ctx allows.
func bounded(ctx context.Context, conn net.Conn, do func() error) error {
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until) // a connection that has none is not one any more
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	err := do()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, conn.SetDeadline(time.Time{}))
}
