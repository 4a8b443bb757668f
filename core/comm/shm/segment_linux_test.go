package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memfd is shared memory as a peer may make it, without a mapping.
func memfd(t testing.TB, size int64, sealed int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("a peer's", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil && sealed != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// What a peer hands over that is not a segment is refused before it is touched, and
// nothing of it is left here. One that is too short, or could become so, would end the
// process where it is touched.
func TestSegmentsOfPeers(t *testing.T) {
	page := int64(os.Getpagesize())
	type handed struct {
		name string
		says string // empty where it is taken
		fds  func(t testing.TB) []int
	}
	one := func(size int64, sealed int) func(testing.TB) []int {
		return func(t testing.TB) []int { return []int{memfd(t, size, sealed)} }
	}
	cases := []handed{
		{"a segment", "", one(segmentBytes, seals)},
		{"none", "0 descriptors came with 1 bytes, want 1 or 2 with one", func(testing.TB) []int { return nil }},
		{"three", "3 descriptors came", func(t testing.TB) []int {
			return []int{memfd(t, segmentBytes, seals), memfd(t, segmentBytes, seals), memfd(t, segmentBytes, seals)}
		}},
		{"as many as can be", "descriptors came", func(t testing.TB) (fds []int) {
			for range 250 {
				fds = append(fds, memfd(t, 0, 0))
			}
			return fds
		}},
		{"read only", "permission denied", func(t testing.TB) []int {
			fd := memfd(t, segmentBytes, seals)
			defer unix.Close(fd)
			again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return []int{again}
		}},
		{"sealed against writing", "operation not permitted", one(segmentBytes, seals|unix.F_SEAL_WRITE)},
		{"a file", "shared memory", func(t testing.TB) []int {
			name := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(name, segmentBytes); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return []int{fd}
		}},
		{"a pipe", "no shared memory", func(t testing.TB) []int {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(p[0])
			return p[1:]
		}},
	}
	for _, size := range []int64{0, 1, page - 1, page, page + 1, controlBytes, controlBytes + RingBytes, segmentBytes - page, segmentBytes - 1, segmentBytes + 1, segmentBytes + page} {
		cases = append(cases, handed{fmt.Sprintf("%d bytes", size), fmt.Sprintf("shared memory of %d bytes", size), one(size, seals)})
	}
	for _, without := range []int{unix.F_SEAL_SHRINK, unix.F_SEAL_GROW, unix.F_SEAL_SEAL, seals} {
		cases = append(cases, handed{fmt.Sprintf("without seal %#x", without), fmt.Sprintf("seals %#x", seals&^without), one(segmentBytes, seals&^without)})
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			near, far := sockets(t)
			before := levelNow(t)
			fds := x.fds(t)
			if _, _, err := far.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			for _, fd := range fds {
				unix.Close(fd)
			}
			s, err := take(t.Context(), near)
			switch {
			case x.says == "" && err == nil:
				// All of it is there.
				s.control[0], s.control[controlBytes-1] = 1, 1
				for i := range s.rings {
					copy(unsafe.Slice((*byte)(s.rings[i]), 2*RingBytes), bytes.Repeat([]byte{1}, 2*RingBytes))
				}
				err = s.close()
			case s != nil:
				t.Error("it is taken")
			}
			if (x.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v, want %q", err, x.says)
			}
			if after := levelNow(t); after != before {
				t.Errorf("%+v before, %+v after", before, after)
			}
		})
	}
}

// Nobody can cut off or extend a segment, and what somebody frees of it reads as 0.
func TestSegmentStaysWhole(t *testing.T) {
	before := levelNow(t)
	fd, s, err := newSegment()
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"shrink":    unix.Ftruncate(fd, segmentBytes-1),
		"empty":     unix.Ftruncate(fd, 0),
		"grow":      unix.Ftruncate(fd, segmentBytes+1),
		"seal more": func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err }(),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range s.rings {
		mem := s.ring(i).mem
		for _, at := range []int{0, 1, RingBytes - 1} { // twice in a row, and not that of the other ring
			mem[at] = byte(7 + i)
			mem[RingBytes+at]++
			if mem[at] != byte(8+i) {
				t.Errorf("ring %d, byte %d is %d, want %d", i, at, mem[at], 8+i)
			}
		}
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, segmentBytes); err != nil {
		t.Fatal(err)
	}
	for i := range s.rings {
		if mem := s.ring(i).mem; mem[0] != 0 || mem[2*RingBytes-1] != 0 {
			t.Errorf("ring %d is %d, %d", i, mem[0], mem[2*RingBytes-1])
		}
	}
	if err := errors.Join(unix.Close(fd), s.close()); err != nil {
		t.Fatal(err)
	}
	if after := levelNow(t); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// A peer that does not take a segment, or hands over none, is not waited for longer
// than the context allows.
func TestPeersThatDoNotShare(t *testing.T) {
	shares := map[string]func(context.Context, *net.UnixConn) (*segment, error){"offer": offer, "take": take}
	for side, share := range shares {
		for _, x := range []struct {
			name string
			do   func(far *net.UnixConn, end context.CancelCauseFunc)
			is   error
		}{
			{"is gone", func(far *net.UnixConn, _ context.CancelCauseFunc) { far.Close() }, nil},
			{"says nothing", func(*net.UnixConn, context.CancelCauseFunc) {}, os.ErrDeadlineExceeded},
			{"says nothing until the run ends", func(_ *net.UnixConn, end context.CancelCauseFunc) { end(errors.New("the run ends")) }, os.ErrDeadlineExceeded},
		} {
			t.Run(side+", a peer that "+x.name, func(t *testing.T) {
				near, far := sockets(t)
				before := levelNow(t)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				ctx, end := context.WithCancelCause(ctx)
				defer end(nil)
				x.do(far, end)
				begun := time.Now()
				s, err := share(ctx, near)
				if err == nil || s != nil || !errors.Is(err, x.is) && x.is != nil {
					t.Errorf("%v, %v, want %v", s, err, x.is)
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				if x.is == nil {
					before.descriptors-- // far
				}
				if after := levelNow(t); after != before {
					t.Errorf("%+v before, %+v after", before, after)
				}
			})
		}
	}
}
