package model

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func named(t *testing.T, name string) Config {
	t.Helper()
	c, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The rotary tables of the fixtures, as bits: the same for every GOAMD64 level
// and architecture.
func TestRotaryTablesPinned(t *testing.T) {
	for name, want := range map[string]uint64{"nano": 0xd7594971f19af95f, "odd": 0x2dee64962049d02f} {
		c := named(t, name)
		h := fnv.New64a()
		cos, sin := Rotary(c.SeqLen, c.HeadDim, c.RopeTheta)
		for _, x := range append(cos, sin...) {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
			h.Write(b[:])
		}
		if got := h.Sum64(); got != want {
			t.Errorf("%s: hash of the rotary tables %#016x, want %#016x", name, got, want)
		}
	}
}

// Row t of the tables is a rotation by t times the frequencies: rows multiply as
// angles add. So the tables are right, whatever their pinned bits say.
func TestRotaryTablesRotate(t *testing.T) {
	const rows, dim = 300, 10
	cos, sin := Rotary(rows, dim, 10000)
	at := func(t, i int) (c, s float64) { return cos[t*dim/2+i], sin[t*dim/2+i] }
	for i := range dim / 2 {
		c1, s1 := at(1, i)
		if want := math.Pow(10000, -2*float64(i)/dim); math.Abs(math.Asin(s1)-want) > 0x1p-50 {
			t.Errorf("frequency %d is %v, want %v", i, math.Asin(s1), want)
		}
		for p := 1; p < rows; p++ {
			c0, s0 := at(p-1, i)
			c, s := at(p, i)
			// Four roundings, and angles p*f good to half an ulp of p.
			if allowed := float64(p+8) * 0x1p-52; math.Abs(c-(float64(c0*c1)-float64(s0*s1))) > allowed || math.Abs(s-(float64(s0*c1)+float64(c0*s1))) > allowed {
				t.Fatalf("position %d, frequency %d: (%v, %v) does not follow (%v, %v)", p, i, c, s, c0, s0)
			}
		}
	}
}

// digestOf is the digest of the initial weights, each logical parameter once.
func digestOf(c Config, seed uint64) string {
	l := NewLayout(c, Whole(c))
	be := ref.New[float32]()
	var d kernels.Digest
	for i := range l.Params {
		p := &l.Params[i]
		if p.Off >= l.Owned {
			continue
		}
		b, err := be.Alloc(p.Len())
		if err != nil {
			return err.Error()
		}
		x := make([]float32, p.Len())
		c.Initial(p, shard.Range{Hi: p.Len()}, seed, x)
		be.Write(kernels.Flat(b), x)
		p.Places(shard.Range{Hi: p.Len()}, func(r shard.Range, rows, cols int, at kernels.Place) {
			be.Hash(&d, kernels.Flat(b).Range(r.Lo, r.Hi).As(rows, cols), at)
		})
	}
	return d.String()
}

// The initial weights of the fixtures at seed 1, on which all golden
// fingerprints rest.
func TestInitialWeightsPinned(t *testing.T) {
	for name, want := range map[string]string{"nano": "0b971e132510c29467d5c778e97a1115", "odd": "335550220104e84a9949f62719d16ba7"} {
		if got := digestOf(named(t, name), 1); got != want {
			t.Errorf("%s: digest of the initial weights %s, want %s", name, got, want)
		}
	}
	if digestOf(named(t, "nano"), 2) == digestOf(named(t, "nano"), 1) {
		t.Error("the seed changes nothing")
	}
}

func TestInitialWeightsAreAsConfigured(t *testing.T) {
	c := named(t, "odd")
	c.LinearBias = true
	l := NewLayout(c, Whole(c))
	for i := range l.Params {
		p := &l.Params[i]
		x := make([]float32, p.Len())
		c.Initial(p, shard.Range{Hi: p.Len()}, 1, x)
		sum, squares := 0.0, 0.0
		for _, v := range x {
			sum, squares = sum+float64(v), squares+float64(float64(v)*float64(v))
		}
		n := float64(len(x))
		mean, std := sum/n, math.Sqrt(squares/n)
		wantMean, want := 0.0, c.InitStd
		switch bias := strings.HasSuffix(p.Name, "bias"); {
		case bias:
			want = c.InitBias
		case p.Rows == 1:
			wantMean, want = 1, 1 // norm weights
		}
		// Five standard errors of the mean, and of the deviation (1/sqrt(2n) of it).
		if math.Abs(mean-wantMean) > 5*want*(1-wantMean)/math.Sqrt(n) || math.Abs(std-want) > 5*want/math.Sqrt(2*n) {
			t.Errorf("%s: mean %v and deviation %v, want %v and %v", p.Name, mean, std, wantMean, want)
		}
	}
}

// run is a whole model with its buffers.
type run struct {
	*Model
	be      *ref.Backend[float32]
	acts    *Acts
	w, g    kernels.Tensor
	loss    kernels.Tensor
	visited []string
}

func newRun(t *testing.T, c Config, seqs int) *run {
	t.Helper()
	be := ref.New[float32]()
	m, err := New(be, c, Whole(c), seqs)
	if err != nil {
		t.Fatal(err)
	}
	flat := func(n int) kernels.Tensor {
		b, err := be.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return kernels.Flat(b)
	}
	r := &run{Model: m, be: be, w: flat(m.Layout.Weights), g: flat(m.Layout.Grads), loss: flat(1)}
	for i := range m.Layout.Params {
		if p := &m.Layout.Params[i]; p.Off < m.Layout.Weights {
			c.Initial(p, shard.Range{Hi: p.Len()}, 3, ref.Data[float32](r.w)[p.Off:p.Off+p.Len()])
		}
	}
	for u := range m.Layout.Units {
		x := m.Layout.Units[u].Range
		if x.Hi <= m.Layout.Weights {
			m.BindWeights(u, r.w.Range(x.Lo, x.Hi))
		}
		m.BindGrads(u, r.g.Range(x.Lo, x.Hi))
	}
	m.BindLoss(r.loss)
	m.Hooks = r
	if r.acts, err = m.NewActs(be, seqs); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *run) Before(_ context.Context, u int, ph Phase) error { return r.visit("<", u, ph) }
func (r *run) After(_ context.Context, u int, ph Phase) error  { return r.visit(">", u, ph) }

func (r *run) visit(mark string, u int, ph Phase) error {
	r.visited = append(r.visited, fmt.Sprintf("%s%s%d", mark, r.Layout.Units[u].Name, ph))
	return nil
}

func (r *run) pass(t *testing.T, b Batch) {
	t.Helper()
	if err := r.Forward(t.Context(), r.acts, b); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Backward(t.Context(), r.acts, kernels.Tensor{}); err != nil {
		t.Fatal(err)
	}
}

// sequences are n random sequences; every third target is ignored.
func sequences(c Config, n int) Batch {
	b := Batch{Seqs: n, InvN: 1 / float64(max(1, n*c.SeqLen))}
	for i := range n * c.SeqLen {
		word := func(s uint64) int32 { return int32(num.Uniform(s, 1, uint64(i)) * float64(c.Vocab)) }
		b.Tokens, b.Targets = append(b.Tokens, word(1)), append(b.Targets, word(2))
		if i%3 == 1 {
			b.Targets[i] = -1
		}
	}
	return b
}

// fixtures are both fixtures with every kind of bias, on few layers.
func fixtures(t *testing.T, f func(t *testing.T, c Config)) {
	for _, name := range []string{"nano", "odd"} {
		for _, tied := range []bool{true, false} {
			c := named(t, name)
			c.Layers, c.SeqLen, c.Tied, c.QKVBias, c.LinearBias, c.InitBias = 2, 9, tied, true, true, 0.1
			t.Run(fmt.Sprintf("%s tied=%v", name, tied), func(t *testing.T) { f(t, c) })
		}
	}
}

// A micro-batch without sequences announces its units like any other and
// changes nothing, whatever the buffers hold.
func TestNoSequences(t *testing.T) {
	fixtures(t, func(t *testing.T, c Config) {
		r := newRun(t, c, 2)
		r.pass(t, sequences(c, 2))
		full := r.visited
		r.visited = nil
		g, loss := append([]float32(nil), ref.Data[float32](r.g)...), ref.Data[float32](r.loss)[0]
		if loss == 0 {
			t.Fatal("no loss to keep")
		}
		r.pass(t, Batch{InvN: 0.5})
		if fmt.Sprint(r.visited) != fmt.Sprint(full) {
			t.Errorf("visited %v, with sequences %v", r.visited, full)
		}
		sameFloats(t, "gradient", ref.Data[float32](r.g), g)
		sameFloats(t, "loss", ref.Data[float32](r.loss), []float32{loss})
	})
}

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if kernels.Bits(got[i]) != kernels.Bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// Ignored targets have no loss and no gradient: +0 everywhere.
func TestIgnoredTokensHaveNoGradient(t *testing.T) {
	fixtures(t, func(t *testing.T, c Config) {
		r := newRun(t, c, 2)
		b := sequences(c, 2)
		for i := range b.Targets {
			b.Targets[i] = -1
		}
		r.pass(t, b)
		sameFloats(t, "gradient", ref.Data[float32](r.g), make([]float32, r.g.Len()))
		sameFloats(t, "loss", ref.Data[float32](r.loss), []float32{0})
	})
}

// Padding at the end of a sequence and ignored sequences beside it change no
// bit: the tokens in them are free.
func TestPaddingIsFree(t *testing.T) {
	fixtures(t, func(t *testing.T, c Config) {
		plain, padded := newRun(t, c, 1), newRun(t, c, 3)
		b := sequences(c, 1)
		for i := c.SeqLen - 4; i < c.SeqLen; i++ {
			b.Tokens[i], b.Targets[i] = 0, -1
		}
		plain.pass(t, b)
		more := sequences(c, 3)
		copy(more.Tokens[c.SeqLen:], b.Tokens[:c.SeqLen-4])
		copy(more.Targets[c.SeqLen:], b.Targets[:c.SeqLen-4])
		for i := range more.Targets {
			if i < c.SeqLen || i >= 2*c.SeqLen-4 {
				more.Targets[i] = -1
			}
		}
		more.InvN = b.InvN
		padded.pass(t, more)
		sameFloats(t, "gradient", ref.Data[float32](padded.g), ref.Data[float32](plain.g))
		sameFloats(t, "loss", ref.Data[float32](padded.loss), ref.Data[float32](plain.loss))
	})
}

// The cut into micro-batches changes no bit: every chain over tokens continues.
func TestMicroBatchesContinue(t *testing.T) {
	fixtures(t, func(t *testing.T, c Config) {
		const seqs = 4
		whole, parts := newRun(t, c, seqs), newRun(t, c, seqs)
		b := sequences(c, seqs)
		whole.pass(t, b)
		for _, r := range []shard.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 1}, {Lo: 1, Hi: 4}} {
			lo, hi := r.Lo*c.SeqLen, r.Hi*c.SeqLen
			parts.pass(t, Batch{Seqs: r.Len(), Tokens: b.Tokens[lo:hi], Targets: b.Targets[lo:hi], InvN: b.InvN})
		}
		sameFloats(t, "gradient", ref.Data[float32](parts.g), ref.Data[float32](whole.g))
		sameFloats(t, "loss", ref.Data[float32](parts.loss), ref.Data[float32](whole.loss))
	})
}
