//go:build cuda

package cuda

import (
	"encoding/binary"

	"github.com/lockstep-ml/lockstep/gpu"
)

// arenaSize is how many bytes of lists an arena has at first; listAlign is where lists begin.
const (
	arenaSize = 1 << 20
	listAlign = 16
)

// arena holds lists that kernels read: bounds of groups, tokens, addresses. A list is
// copied to pinned memory, and from there to the device by the stream, so the caller may
// use its own anew at once. A list that is there already, as bounds of groups are, is not
// copied again. When the arena is full it waits for the device and begins anew.
type arena struct {
	dev  *gpu.Buffer
	host *gpu.Pinned
	used int
	at   map[string]uint64
}

func (a *arena) open(d *gpu.Device, bytes int) (err error) {
	a.used, a.at = 0, map[string]uint64{}
	if a.dev, err = d.Alloc(bytes); err != nil {
		return err
	}
	a.host, err = d.AllocPinned(bytes)
	return err
}

func (a *arena) close() error {
	var errs []error
	if a.dev != nil {
		errs = append(errs, a.dev.Free())
	}
	if a.host != nil {
		errs = append(errs, a.host.Free())
	}
	a.dev, a.host = nil, nil
	return gpu.Join(errs...)
}

// room makes sure that lists of so many bytes, together, fit: what list gives from now on
// stays until the next call of room. It reports whether there is room.
func (b *Backend) room(bytes, lists int) bool {
	a := &b.fixed
	bytes += lists * listAlign
	if a.dev == nil {
		return false // growing failed before
	}
	if a.used+bytes <= a.dev.Bytes() {
		return true
	}
	if b.sync() != nil {
		return false
	}
	a.used = 0
	clear(a.at)
	if bytes <= a.dev.Bytes() {
		return true
	}
	err := a.close()
	if err == nil {
		err = a.open(b.dev, 2*bytes)
	}
	b.note(err)
	return err == nil
}

// list is the address of a list on the device.
func (b *Backend) list(x []byte) uint64 {
	a := &b.fixed
	if at, ok := a.at[string(x)]; ok {
		return at
	}
	from := a.used
	a.used += ceil(len(x), listAlign) * listAlign
	copy(a.host.Bytes()[from:], x)
	b.note(b.stream.UploadPinned(a.dev, from, a.host, from, len(x)))
	at := a.dev.Address() + uint64(from)
	a.at[string(x)] = at
	return at
}

// int32s writes numbers of 4 bytes.
func int32s[T int | int32](xs []T) []byte {
	out := make([]byte, 0, 4*len(xs))
	for _, x := range xs {
		out = binary.LittleEndian.AppendUint32(out, uint32(int32(x)))
	}
	return out
}

// uint64s writes numbers of 8 bytes.
func uint64s(xs []uint64) []byte {
	out := make([]byte, 0, 8*len(xs))
	for _, x := range xs {
		out = binary.LittleEndian.AppendUint64(out, x)
	}
	return out
}

// indices is the list of one slice of indices; ok is false after a fault.
func (b *Backend) indices(xs []int32) (at uint64, ok bool) {
	x := int32s(xs)
	if !b.room(len(x), 1) {
		return 0, false
	}
	return b.list(x), true
}
