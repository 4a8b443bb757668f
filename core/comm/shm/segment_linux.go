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

// segment is the memory of a link: a page of words, and two rings; and, where they are
// handed over with it, the arenas of both sides.
type segment struct {
	control []byte
	rings   [2]unsafe.Pointer // each mapped twice in a row
	mine    *arena
	peer    *peer
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

// sealed looks at shared memory, whose size must stay what it is.
func sealed(fd int) (st unix.Stat_t, err error) {
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return st, fmt.Errorf("what is no shared memory: %w", err)
	}
	if err = unix.Fstat(fd, &st); err == nil && has&seals != seals {
		err = fmt.Errorf("shared memory of %d bytes with seals %#x: must have %#x", st.Size, has, seals)
	}
	return st, err
}

// mapped maps a segment that is of the right size and stays so.
func mapped(fd int) (*segment, error) {
	st, err := sealed(fd)
	if err != nil {
		return nil, err
	}
	if st.Size != segmentBytes {
		return nil, fmt.Errorf("shared memory of %d bytes: must have %d", st.Size, segmentBytes)
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
	if s.peer != nil {
		err = errors.Join(err, s.peer.drop())
		s.peer = nil
	}
	return err
}

// offer makes the segment of a connection that this side has dialed, and hands it over.
// What the other side answers with is its arena.
func offer(ctx context.Context, conn *net.UnixConn) (*segment, error) {
	fd, s, err := newSegment()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = bounded(ctx, conn, func() error {
		if err := s.hand(conn, fd); err != nil {
			return fmt.Errorf("hand over shared memory: %w", err)
		}
		fds, err := descriptors(conn, 0)
		if err != nil {
			return fmt.Errorf("shared memory was not taken: %w", err)
		}
		return s.meet(fds)
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// take is the other side of offer.
func take(ctx context.Context, conn *net.UnixConn) (s *segment, err error) {
	err = bounded(ctx, conn, func() error {
		fds, err := descriptors(conn, 1)
		if err != nil {
			return err
		}
		if s, err = mapped(fds[0]); err != nil {
			return errors.Join(err, closeAll(fds))
		}
		if err := errors.Join(unix.Close(fds[0]), s.meet(fds[1:])); err != nil {
			return err
		}
		return s.hand(conn)
	})
	if err != nil && s != nil {
		err, s = errors.Join(err, s.close()), nil
	}
	return s, err
}

// hand gives descriptors to the other side, the last one that of this process's arena if
// it has one.
func (s *segment) hand(conn *net.UnixConn, fds ...int) error {
	if s.mine = process.arena.Load(); s.mine != nil {
		fds = append(fds, s.mine.reads)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix([]byte{1}, rights, nil)
	return err
}

// meet maps the arena of the other side, if that has one.
func (s *segment) meet(fds []int) (err error) {
	for _, fd := range fds {
		s.peer, err = read(fd)
	}
	return errors.Join(err, closeAll(fds))
}

// descriptors receives those that come with a byte: some, and perhaps one of an arena. Of
// others all are closed.
func descriptors(conn *net.UnixConn, some int) (fds []int, err error) {
	var b [1]byte
	oob := make([]byte, 256)
	n, oobn, flags, _, err := conn.ReadMsgUnix(b[:], oob)
	if err != nil {
		return nil, err
	}
	all, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range all {
		more, err := unix.ParseUnixRights(&all[i])
		if err == nil {
			fds = append(fds, more...)
		}
	}
	if (len(fds) == some || len(fds) == some+1) && n == 1 && flags&unix.MSG_CTRUNC == 0 {
		return fds, nil
	}
	return nil, errors.Join(fmt.Errorf("%d descriptors came with %d bytes, want %d or %d with one", len(fds), n, some, some+1), closeAll(fds))
}

func closeAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
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
