//go:build cuda

package gpu

import (
	"errors"
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// TestTooMuch: numbers that the driver's types do not have are refused, not cut off: their
// low bits would be some that it takes.
func TestTooMuch(t *testing.T) {
	a, _ := devices(t)
	k := newKit(t, a)
	launch := func(grid, block Dim, shared int) error {
		return k.k.Launch(k.s, grid, block, shared, k.params.Reset().Pointer(k.b, 0).U32(1))
	}
	const much = 1<<32 + 1
	for what, err := range map[string]error{
		"blocks":             launch(Dim{X: much}, Dim{}, 0),
		"blocks in y":        launch(Dim{Y: much}, Dim{}, 0),
		"blocks in z":        launch(Dim{Z: much}, Dim{}, 0),
		"threads":            launch(Dim{}, Dim{X: much}, 0),
		"threads in z":       launch(Dim{}, Dim{Z: much}, 0),
		"shared memory":      launch(Dim{}, Dim{}, 1<<32),
		"most shared memory": k.k.AllowShared(1<<32 + 1024),
		"Fill32":             k.s.Fill32(k.b, 0, 1, 1<<62+1),
		"negative Fill32":    k.s.Fill32(k.b, 0, 1, -1<<62),
		"Fill":               k.s.Fill(k.b, 0, 1, math.MaxInt),
		"an offset":          k.s.Fill(k.b, math.MaxInt, 1, 8),
		"Copy":               k.s.Copy(k.b, 8, k.b, 0, math.MaxInt),
		"UploadPinned":       k.s.UploadPinned(k.b, 8, k.h, 8, math.MaxInt),
	} {
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, threads := range []int{0, -1, much} {
		if n, err := k.k.Occupancy(threads, 0); !errors.Is(err, InvalidValue) {
			t.Errorf("occupancy of %d threads: %d, %v", threads, n, err)
		}
	}
	if _, err := a.Alloc(math.MaxInt); !errors.Is(err, OutOfMemory) {
		t.Errorf("Alloc: %v", err)
	}
}

// TestLasts: which results stay.
func TestLasts(t *testing.T) {
	for _, r := range []drv.Result{214, 700, 702, 710, 714, 715, 716, 717, 718, 719} {
		if !r.Lasts() {
			t.Errorf("%v does not stay", r)
		}
	}
	for _, r := range []drv.Result{InvalidValue, OutOfMemory, NotFound, NotReady, NotSupported, 201, 400, 701} {
		if r.Lasts() {
			t.Errorf("%v stays", r)
		}
	}
}
