//go:build cuda

package cuda

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestPeers: a backend reduces and copies tensors of another device, which its kernels can
// use or cannot, to the bits of package ref.
func TestPeers(t *testing.T) {
	choice, err := gpu.ParseChoice("", os.Getenv(gpu.Variable))
	if err != nil {
		t.Fatal(err)
	}
	devices, err := gpu.Open(choice)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := gpu.Close(devices); err != nil {
			t.Error(err)
		}
	}()
	for _, staged := range []bool{false, true} {
		var bs [2]*Backend
		for i := range bs {
			if bs[i], err = New(devices[i%len(devices)]); err != nil {
				t.Fatal(err)
			}
		}
		if staged {
			for i, b := range bs {
				b.peers[devices[(i+1)%len(devices)]] = false
			}
		}
		for _, n := range []int{1, 33, 5000} {
			reducesPeers(t, bs, n)
		}
		for _, b := range bs {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func reducesPeers(t *testing.T, bs [2]*Backend, n int) {
	def := ref.New[float32]()
	var here, want []kernels.Tensor
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range 5 {
		x := make([]float32, n+3)
		for j := range x {
			x[j] = r.Float32() - 0.5
		}
		for _, to := range []struct {
			b    kernels.Backend
			list *[]kernels.Tensor
		}{{bs[i%2], &here}, {def, &want}} {
			buf, err := to.b.Alloc(n + 3)
			if err != nil {
				t.Fatal(err)
			}
			defer to.b.Free(buf)
			to.b.Write(kernels.Flat(buf), x)
			*to.list = append(*to.list, kernels.Flat(buf).Range(3, n+3))
		}
	}
	for _, ts := range []struct {
		b  kernels.Backend
		ts []kernels.Tensor
	}{{bs[0], here}, {def, want}} {
		ts.b.Reduce(ts.ts[1:4], ts.ts[:4], kernels.Sum)
		ts.b.Copy(ts.ts[4], ts.ts[3])
		if err := ts.b.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range here {
		got, was := make([]float32, n+3), make([]float32, n+3)
		if err := bs[i%2].Read(got, kernels.Flat(here[i].Buf)); err != nil {
			t.Fatal(err)
		}
		_ = def.Read(was, kernels.Flat(want[i].Buf)) // never an error
		if !slices.Equal(got, was) {
			t.Errorf("%d elements: tensor %d differs", n, i)
		}
	}
}

// TestByRow: each position of a token of the table is in the chain of its row, in order.
func TestByRow(t *testing.T) {
	rows, starts, positions := byRow([]int32{7, 3, -1, 7, 12, 5, 3, 2, 7}, 3, 8)
	for _, c := range []struct{ got, want []int32 }{
		{rows, []int32{0, 2, 4}}, {starts, []int32{0, 2, 3, 6}}, {positions, []int32{1, 6, 5, 0, 3, 8}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// Memory is of the device that has it, whose UUID no other one has.
func TestSpansAreOfTheirDevice(t *testing.T) {
	b := opened(t)
	buf, err := b.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free(buf)
	if got := b.Span(kernels.Flat(buf)).Space; got == "" || got != b.dev.UUID {
		t.Errorf("memory of %q, want %q", got, b.dev.UUID)
	}
}
