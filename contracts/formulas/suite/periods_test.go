package suite_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// on puts the cases of a configuration, of this one process, on a text of n bytes in
// periods.
func on(config, period string, n int, broken fault.Fault) (out []suite.Case) {
	text := data.Text{Name: "periods", Bytes: bytes.Repeat([]byte(period), n)[:n]}
	o := contracttest.Options()
	o.Text = text
	for _, c := range formulas.Suite().Cases(o) {
		r := c.Runs[contract.Test]
		if !strings.HasPrefix(c.Name, config) || strings.Contains(c.Name, "from step") || strings.Contains(c.Name, "sgd") {
			continue
		}
		do := r.Do
		r.Key += period
		r.Do = func(ctx context.Context, env suite.Env) (*trace.History, error) {
			env.Text = func(string) (data.Text, error) { return text, nil }
			if broken != nil {
				broken(&env.Parts)
			}
			return do(ctx, env)
		}
		c.Runs[contract.Test] = r
		out = append(out, c)
	}
	return out
}

// On texts of few bytes again and again, attention has nothing to choose between, and the
// gradients of queries and keys cancel: altogether where all bytes are equal. Clauses
// hold.
func TestTextsOfPeriods(t *testing.T) {
	for _, period := range []string{"a", "ab", "aab", "abc", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "\xff"} {
		var r contracttest.Runner
		config := "nano"
		if period == "a" {
			config = "" // all of them
		}
		r.Held(t, formulas.Suite(), on(config, period, 2000, nil))
	}
}

// keyless is a backend in whose attention's gradients one score of each query keeps a
// part of what must cancel.
type keyless struct {
	kernels.Backend
	part float64
}

func (b *keyless) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	b.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	out, keys, values, grads := read(b, dq), read(b, k), read(b, v), read(b, do)
	for row := range dq.Rows {
		t := row % h.T
		for head := range h.Heads {
			at, kv := row*h.Heads*h.Dim+head*h.Dim, row*h.KVHeads*h.Dim+head/(h.Heads/h.KVHeads)*h.Dim
			dot := 0.0
			for d := range h.Dim {
				dot += float64(float64(grads[at+d]) * float64(values[kv+d]))
			}
			for d := range h.Dim { // equal keys have equal probabilities, but for their rotation
				out[at+d] += float32(b.part * dot / float64(t+1) * h.Scale * float64(keys[kv+d]))
			}
		}
	}
	b.Write(dq, out)
}

func read(be kernels.Backend, x kernels.Tensor) []float32 {
	out := make([]float32, x.Len())
	_ = be.Read(out, x)
	return out
}

// Where gradients cancel altogether, what is left of one is seen: of a whole term that is
// not subtracted, and of a hundredth of it.
func TestWhatDoesNotCancelIsSeen(t *testing.T) {
	for _, part := range []float64{1, 0.01} {
		var r contracttest.Runner
		broken := fault.OnBackend(0, func(be kernels.Backend) kernels.Backend { return &keyless{be, part} })
		for _, cs := range on("nano adamw", "a", 2000, broken) {
			e, err := r.Evidence(t, cs)
			if err != nil {
				t.Fatal(err)
			}
			res := contracttest.Verdicts(formulas.Suite(), e)["2"]
			if res.Verdict() != contract.Violated || res.Findings[0].Tensor != "block.3/dq" {
				t.Errorf("%v of a term: %s, %d findings, doubts %q", part, res.Verdict(), res.Total, res.Doubts)
				contracttest.Log(t, res)
			}
		}
	}
}
