package trace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// TestRepeatedLines: a line that is there twice is damage of the file where its event
// happens once, and what the run did twice where it may.
func TestRepeatedLines(t *testing.T) {
	op := Event{Kind: KindComm, Op: names.OpAllReduce, Group: names.DP, Ranks: []int{0, 1}, Unit: "embed", Count: 3}
	again := op
	again.Seq = 1
	failed := op
	failed.Text = "too late"
	d := &kernels.Digest{A: 1}
	for _, x := range []struct {
		name    string
		events  []Event
		left    int
		damaged string
	}{
		{"a line twice", []Event{op, op}, 1, "x:3: repeats line 2, a comm event of step 0"},
		{"a line twice, others between", []Event{op, again, op, again}, 2, "x:4: repeats line 2, a comm event of step 0; so do 1 more lines"},
		{"an operation issued twice", []Event{op, again}, 2, ""},
		{"an operation that failed twice", []Event{failed, failed}, 2, ""},
		{"a state twice", []Event{{Kind: KindDigest, What: Weight, Tensor: "w", Digest: d}, {Kind: KindDigest, What: Weight, Tensor: "w", Digest: d}}, 1, "x:3: repeats line 2, a digest event of step 0"},
		{"a worker's gradient twice", []Event{{Kind: KindDigest, What: WorkerGrad, Tensor: "w", Digest: d}, {Kind: KindDigest, What: WorkerGrad, Tensor: "w", Digest: d}}, 2, ""},
		{"an activation twice", []Event{{Kind: KindTap, What: Forward, Unit: "embed", Tensor: "w", Digest: d}, {Kind: KindTap, What: Forward, Unit: "embed", Tensor: "w", Digest: d}}, 1, "x:3: repeats line 2, a tap event of step 0"},
		{"an activation of two micro-batches", []Event{{Kind: KindTap, What: Forward, Unit: "embed", Tensor: "w", Digest: d}, {Kind: KindTap, What: Forward, Unit: "embed", Tensor: "w", Digest: d, Micro: 1}}, 2, ""},
		{"a checkpoint gone on from twice", []Event{{Kind: KindResume, Step: 2}, {Kind: KindResume, Step: 2}}, 1, "x:3: repeats line 2, a resume event of step 2"},
		{"a leaf that entered twice", []Event{{Kind: KindLeaf, Unit: "embed"}, {Kind: KindLeaf, Unit: "embed"}}, 2, ""},
	} {
		l := &Log{Header: Header{Schema: Schema, World: 2, Plan: "dp=2", Model: "m"}}
		for _, e := range x.events {
			l.Record(e)
		}
		var b bytes.Buffer
		if err := l.Write(&b); err != nil {
			t.Fatal(err)
		}
		if all, err := Receive(bytes.NewReader(b.Bytes()), "x"); err != nil || len(all.Events()) != len(x.events) || all.damage != "" {
			t.Errorf("%s: of another process %d events, %v", x.name, len(all.Events()), err)
		}
		got, err := Read(&b, "x")
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		h, err := Merge([]*Log{got})
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.Join(h.Damage, "\n"); len(h.Ranks[0]) != x.left || s != x.damaged {
			t.Errorf("%s: %d events are left, want %d; damage %q, want %q", x.name, len(h.Ranks[0]), x.left, s, x.damaged)
		}
	}
}
