package shm

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// peer is the arena of a process, as this one reads it: one mapping for all links.
type peer struct {
	file  inode
	mem   []byte
	links int
}

// inode names a file for as long as somebody has it.
type inode struct{ device, number uint64 }

// peers are those that links use.
var peers = struct {
	sync.Mutex
	of map[inode]*peer
}{of: map[inode]*peer{}}

// read maps what a peer has handed over, unless it is mapped.
func read(fd int) (*peer, error) {
	st, err := sealed(fd)
	if err != nil {
		return nil, err
	}
	// Of huge pages there may be none left when one is touched, which ends a process.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, err
	}
	if st.Size < 1 || st.Size > arenaBytes || fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("shared memory of %d bytes, of file system %#x: must have 1 to %d, and be of %#x", st.Size, fs.Type, arenaBytes, unix.TMPFS_MAGIC)
	}
	file := inode{uint64(st.Dev), st.Ino}
	peers.Lock()
	defer peers.Unlock()
	p := peers.of[file]
	if p == nil {
		mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
		if errors.Is(err, unix.ENOMEM) {
			return nil, nil // too few addresses: the peer hears that it must copy
		}
		if err != nil {
			return nil, fmt.Errorf("mmap of %d bytes: %w", st.Size, err)
		}
		p = &peer{file: file, mem: mem}
		peers.of[file] = p
	}
	p.links++
	return p, nil
}

// drop is the end of a link's use.
func (p *peer) drop() error {
	peers.Lock()
	defer peers.Unlock()
	if p.links--; p.links > 0 {
		return nil
	}
	delete(peers.of, p.file)
	return unix.Munmap(p.mem)
}

// part is n bytes that a line says to be at an offset.
func (p *peer) part(at uint64, n int) ([]byte, error) {
	var mem []byte
	if p != nil {
		mem = p.mem
	}
	const element = 4
	if at%element != 0 || at > uint64(len(mem)) || uint64(n) > uint64(len(mem))-at {
		return nil, engine.Corrupt("a payload of %d bytes lies at %d of memory of %d bytes", n, at, len(mem))
	}
	return mem[at:][:n:n], nil
}
