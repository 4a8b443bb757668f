package independent_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// texts are a real one, one of every byte, and random ones of line ends and
// letters.
func texts() map[string][]byte {
	all := make([]byte, 1024)
	for i := range all {
		all[i] = byte(i * 37)
	}
	out := map[string][]byte{"default": data.Default().Bytes, "bytes": all,
		"ends": []byte("\n\n\nab\r\n\r\ncd\n\r\n\n\nefghi\n\n"), "one line": []byte("abcdefghijklmnop")}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		b := make([]byte, 1+r.IntN(300))
		for i := range b {
			b[i] = "ab\n\n\r\xff"[r.IntN(6)]
		}
		out[fmt.Sprintf("random %d", n)] = b
	}
	return out
}

// Sequences, ids and valid counts of three epochs are core's, or both refuse.
func TestDataIsCores(t *testing.T) {
	accepted, refused, padded, dropped := 0, 0, 0, 0
	for name, text := range texts() {
		for _, o := range []data.Options{
			{SeqLen: 32, PerStep: 16, Vocab: 256}, {SeqLen: 45, PerStep: 13, Vocab: 258, Blank: []int{5}}, {SeqLen: 1, PerStep: 1, Vocab: 256},
			{SeqLen: 7, PerStep: 3, Vocab: 256, Blank: []int{0, 2}}, {SeqLen: 2, PerStep: 5, Vocab: 256}, {SeqLen: 8, PerStep: 2, Vocab: 128},
		} {
			for _, policy := range []data.Policy{data.Drop, data.Pad} {
				o.LastStep = policy
				set, err := data.New(data.Text{Name: name, Bytes: text}, o)
				c := &independent.Corpus{SeqLen: o.SeqLen, PerStep: o.PerStep, Pad: policy == data.Pad, Blank: o.Blank}
				if got := c.Read(text, o.Vocab); got != nil || err != nil {
					// A step of blank sequences alone is core's to refuse.
					if (got == nil) != (err == nil) && !(got == nil && strings.Contains(err.Error(), "no token is valid")) {
						t.Errorf("%s %+v: %v, core says %v", name, o, got, err)
					}
					refused++
					continue
				}
				accepted++
				if c.Steps() != set.Steps() {
					t.Fatalf("%s %+v: %d steps, core has %d", name, o, c.Steps(), set.Steps())
				}
				if set.Len()%o.PerStep != 0 {
					if policy == data.Pad {
						padded++
					} else {
						dropped++
					}
				}
				sameSteps(t, name, c, set)
			}
		}
	}
	if accepted < 200 || refused < 10 || padded < 50 || dropped < 50 {
		t.Errorf("%d accepted, %d refused, %d with padding, %d with sequences left out", accepted, refused, padded, dropped)
	}
}

func sameSteps(t *testing.T, name string, c *independent.Corpus, set *data.Set) {
	t.Helper()
	steps := min(3*set.Steps(), set.Steps()+9)
	for s := 0; s < steps; s++ {
		var want []independent.Sequence
		for i, q := range set.Step(s) {
			want = append(want, independent.Sequence{ID: int64(set.IDs(s)[i]), Tokens: q.Tokens, Targets: q.Targets, Valid: q.Valid})
		}
		if got := c.Step(s); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s step %d: %s", name, s, cmp.Diff(got, want))
		}
	}
}

// A text that differs in one byte, or an order that differs in one place, shows.
func TestDataTellsTextsApart(t *testing.T) {
	text := bytes.Clone(data.Default().Bytes[:5000])
	read := func() *independent.Corpus {
		c := &independent.Corpus{SeqLen: 32, PerStep: 4}
		if err := c.Read(bytes.Clone(text), 256); err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := read()
	text[700] ^= 1
	b := read()
	differ := 0
	for s := range a.Steps() {
		if !cmp.Equal(a.Step(s), b.Step(s)) {
			differ++
		}
	}
	if differ == 0 || cmp.Equal(a.Step(0), a.Step(1)) || !cmp.Equal(a.Step(0), a.Step(a.Steps())) {
		t.Errorf("%d steps differ after a byte did; step 0 is step 1: %v; step %d is step 0: %v", differ,
			cmp.Equal(a.Step(0), a.Step(1)), a.Steps(), cmp.Equal(a.Step(0), a.Step(a.Steps())))
	}
}

// Dealing, cutting and walking are core's.
func TestDealingIsCores(t *testing.T) {
	for n := range 30 {
		for workers := 1; workers <= 9; workers++ {
			for w := range workers {
				want := shard.Part{Index: w, Size: workers}.Interleave(n)
				if got := independent.Dealt(n, w, workers); len(got) != len(want) || len(want) > 0 && !cmp.Equal(got, want) {
					t.Errorf("worker %d of %d takes %v of %d, want %v", w, workers, got, n, want)
				}
			}
			for i, got := range independent.Cut(n, workers) {
				if want := (shard.Part{Index: i, Size: workers}).Of(n).Len(); got != want {
					t.Errorf("micro-batch %d of %d takes %d of %d, want %d", i, workers, got, n, want)
				}
			}
		}
	}
	c := model.Config{Groups: model.Groups{Tensor: 1, Data: 8}}
	for _, dp := range []int{1, 2, 3, 4, 5, 8} {
		for zero := range 4 {
			p := plan.Plan{DP: dp, Zero: zero}
			for r := range dp {
				if got, want := independent.RankWorkers(r, dp, p.Workers(c), zero >= 2), p.RankWorkers(c, r); !cmp.Equal(got, want) {
					t.Errorf("dp=%d zero=%d: rank %d walks %v, want %v", dp, zero, r, got, want)
				}
			}
		}
	}
}

func TestCorpusRefuses(t *testing.T) {
	for _, c := range []struct {
		corpus independent.Corpus
		text   string
		vocab  int
		says   string
	}{
		{independent.Corpus{SeqLen: 0, PerStep: 1}, "ab", 256, "at least 1"},
		{independent.Corpus{SeqLen: 1, PerStep: 0}, "ab", 256, "at least 1"},
		{independent.Corpus{SeqLen: 1, PerStep: 2, Blank: []int{2}}, "ab", 256, "blank position 2"},
		{independent.Corpus{SeqLen: 1, PerStep: 1}, "a\xff", 255, "byte 255 at 1"},
		{independent.Corpus{SeqLen: 1, PerStep: 2}, "ab", 256, "too few"},
		{independent.Corpus{SeqLen: 1, PerStep: 2, Pad: true}, "a", 256, "too few"},
	} {
		if err := c.corpus.Read([]byte(c.text), c.vocab); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v of %q: %v, want an error with %q", c.corpus, c.text, err, c.says)
		}
	}
}
