package shm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept is how many bytes of memory an arena takes.
func kept(t testing.TB, a *arena) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(a.fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// Whatever is taken and given back, in whatever order: what is taken is zeros, and nobody
// else's; what is given back is one piece again, and the system's.
func TestArena(t *testing.T) {
	before := levelNow(t)
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var held [][]float32
	for n := range 3000 {
		if len(held) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(held))
			for _, v := range held[i] {
				if v != held[i][0] {
					t.Fatal("two have taken the same memory")
				}
			}
			a.Give(held[i])
			held = slices.Delete(held, i, i+1)
			continue
		}
		x := a.Take(leastTaken/4 + random.IntN(4*pageBytes/4))
		if i := slices.IndexFunc(x, func(v float32) bool { return v != 0 }); i >= 0 || x == nil {
			t.Fatalf("of %d elements element %d is not 0", len(x), i)
		}
		for i := range x {
			x[i] = float32(n + 1)
		}
		held = append(held, x)
	}
	for _, x := range held {
		a.Give(x)
	}
	if whole := []extent{{0, arenaBytes}}; !slices.Equal(a.free, whole) {
		t.Errorf("all is given back, and free is %v", a.free)
	}
	if n := kept(t, a); n != 0 {
		t.Errorf("all is given back, and it takes %d bytes", n)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	if after := levelNow(t); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// What is short, or more than there is, is to be allocated elsewhere; what is free is
// found between others.
func TestArenaEnds(t *testing.T) {
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, n := range []int{-1, 0, 1, leastTaken/4 - 1, arenaBytes/4 + 1, int(^uint(0) >> 1)} {
		if x := a.Take(n); x != nil {
			t.Errorf("%d elements are taken", n)
		}
	}
	const third = arenaBytes / 4 / 4
	var parts [4][]float32
	for i := range parts {
		if parts[i] = a.Take(third); len(parts[i]) != third || cap(parts[i]) != third {
			t.Fatalf("part %d has %d elements, room for %d", i, len(parts[i]), cap(parts[i]))
		}
	}
	if a.Take(leastTaken/4) != nil {
		t.Error("more is taken than there is")
	}
	at := unsafe.SliceData(parts[1])
	a.Give(parts[1])
	if a.Take(third+1) != nil || unsafe.SliceData(a.Take(third)) != at {
		t.Error("what is free is not taken again")
	}
}

// Several goroutines use an arena at once.
func TestArenaOfMany(t *testing.T) {
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for range 200 {
				x := a.Take(leastTaken / 4)
				for i := range x {
					if x[i] += float32(g); x[i] != float32(g) {
						t.Errorf("element %d of %d's is %v", i, g, x[i])
						return
					}
				}
				a.Give(x)
			}
		})
	}
	all.Wait()
	if len(a.free) != 1 {
		t.Errorf("free is %v", a.free)
	}
}

// Nobody who is handed the descriptor can write to it, or cut it off, or free its pages.
func TestArenaIsReadOnly(t *testing.T) {
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	x := a.Take(leastTaken / 4)
	x[0] = 7
	writes := func() error {
		_, err := unix.Mmap(a.reads, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	}
	for what, err := range map[string]error{
		"map":                writes(),
		"cut":                unix.Ftruncate(a.reads, 0),
		"cut by who made it": unix.Ftruncate(a.fd, 0),
		"free":               unix.Fallocate(a.reads, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, pageBytes),
		"pwrite":             func() error { _, err := unix.Pwrite(a.reads, []byte{1}, 0); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: nothing keeps a peer from it", what)
		}
	}
	p, err := read(a.reads)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read(a.reads)
	if err != nil || again != p {
		t.Errorf("it is mapped twice: %v", err)
	}
	if b, err := p.part(0, 4); err != nil || *(*float32)(unsafe.Pointer(&b[0])) != 7 {
		t.Errorf("%v, %v is read", b, err)
	}
	if err := errors.Join(p.drop(), again.drop()); err != nil || len(peers.of) > 0 && peers.of[p.file] != nil {
		t.Errorf("it stays mapped: %v", err)
	}
}

// What a peer hands over as its memory is refused where it could end this process, or is
// none; positions in it are taken where they are.
func TestArenasOfPeers(t *testing.T) {
	readable(t)
	for _, x := range []struct {
		name, says string
		fd         func(t testing.TB) int
	}{
		{"memory", "", func(t testing.TB) int { return memfd(t, 3*pageBytes, seals) }},
		{"as much as can be", "", func(t testing.TB) int { return memfd(t, arenaBytes, seals) }},
		{"too much", "shared memory of", func(t testing.TB) int { return memfd(t, arenaBytes+1, seals) }},
		{"none", "shared memory of 0 bytes", func(t testing.TB) int { return memfd(t, 0, seals) }},
		{"what can be cut off", "seals", func(t testing.TB) int { return memfd(t, pageBytes, seals&^unix.F_SEAL_SHRINK) }},
		{"a pipe", "no shared memory", func(t testing.TB) int {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(p[1])
			return p[0]
		}},
		{"huge pages", "file system", func(t testing.TB) int {
			fd, err := unix.MemfdCreate("a peer's", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
			if err == nil {
				err = unix.Ftruncate(fd, 1<<30)
			}
			if err == nil {
				_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
			}
			if err != nil {
				t.Skip("this system has none:", err)
			}
			return fd
		}},
	} {
		for _, side := range []string{"take", "offer"} {
			t.Run(fmt.Sprintf("%s, %s", x.name, side), func(t *testing.T) {
				near, far := sockets(t)
				before := levelNow(t)
				fds := []int{x.fd(t)}
				share := offer
				if side == "take" {
					share, fds = take, []int{memfd(t, segmentBytes, seals), fds[0]}
				}
				if _, _, err := far.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil); err != nil {
					t.Fatal(err)
				}
				if err := closeAll(fds); err != nil {
					t.Fatal(err)
				}
				s, err := share(t.Context(), near)
				if (x.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.says) {
					t.Errorf("%v, want %q", err, x.says)
				}
				if err == nil {
					err = errors.Join(positions(s.peer), s.close())
				}
				if err != nil && x.says == "" {
					t.Error(err)
				}
				far.Close() // with what was handed to it
				before.descriptors--
				if after := levelNow(t); after != before {
					t.Errorf("%+v before, %+v after", before, after)
				}
			})
		}
	}
}

// positions tries what a line can say of a peer's memory.
func positions(p *peer) error {
	size := uint64(len(p.mem))
	for _, x := range []struct {
		at   uint64
		n    int
		fits bool
	}{
		{0, 4, true}, {size - 8, 8, true}, {4, 0, true}, {size, 0, true}, {0, int(min(size, 1<<30)), true},
		{size - 4, 8, false}, {size, 4, false}, {size + 4, 0, false}, {1, 4, false}, {2, 4, false}, {1 << 63, 4, false},
		{^uint64(3), 4, false}, {^uint64(3), 8, false}, {4, int(^uint(0) >> 1), false}, {^uint64(0), 1, false},
	} {
		b, err := p.part(x.at, x.n)
		if (err == nil) != x.fits || x.fits && len(b) != x.n {
			return fmt.Errorf("%d bytes at %d of %d: %v", x.n, x.at, size, err)
		}
		if x.fits && x.n > 0 && b[0]+b[x.n-1] != 0 {
			return errors.New("what nobody has written is not 0")
		}
	}
	if _, err := (*peer)(nil).part(0, 4); err == nil {
		return errors.New("where there is no memory something is read")
	}
	return nil
}
