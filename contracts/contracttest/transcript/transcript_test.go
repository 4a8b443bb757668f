package transcript

import (
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]trace.Event{
		"end": {Kind: trace.KindEnd},
		" comm  step=-1 op=send group=dp ranks=0,3 overlap seq=18446744073709551615 peer=3 count=7 bytes=28": {Kind: trace.KindComm, Step: -1, Op: names.OpSend,
			Group: names.DP, Ranks: []int{0, 3}, Overlap: true, Seq: math.MaxUint64, Peer: 3, Count: 7, Bytes: 28},
		"digest what=m tensor=a digest=000000000000000a000000000000000b!3 data=1,-0,NaN once": {Kind: trace.KindDigest, What: trace.MomentM, Tensor: "a", Once: true,
			Digest: &kernels.Digest{A: 10, B: 11, NonFinite: 3}, Data: trace.Floats{1, float32(math.Copysign(0, -1)), float32(math.NaN())}},
		"digest digest=abc!2":            {Kind: trace.KindDigest, Digest: &kernels.Digest{A: kernels.TensorID("abc"), B: 3, NonFinite: 2}},
		"span what=weight span=16-32":    {Kind: trace.KindSpan, What: trace.Weight, Span: &kernels.Span{Space: "host", Lo: 16, Hi: 32}},
		"unmoved ranges=0-2,7-9":         {Kind: trace.KindUnmoved, Ranges: [][2]int64{{0, 2}, {7, 9}}},
		`skip text="a \"b\" = c" `:       {Kind: trace.KindSkip, Text: `a "b" = c`},
		"scalar value=-Inf bits=0xff":    {Kind: trace.KindScalar, Value: trace.Float(math.Inf(-1)), Bits: 255},
		"scalar value=0.1":               {Kind: trace.KindScalar, Value: 0.1},
		"data ids=-1,4 worker=2 micro=1": {Kind: trace.KindData, IDs: []int64{-1, 4}, Worker: 2, Micro: 1},
	} {
		got, _, err := Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })); d != "" {
			t.Errorf("%s: %s", line, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"": "no event", "end when=1": "when: no such field", "end rank=1": "rank: no such field", "end step": "step: has no value",
		"end step=x": "", `skip text="a`: "invalid syntax", "scalar value=much": "invalid", "scalar bits=-1": "invalid", "digest digest=a!x": "digest: ",
		"span span=1": "", "unmoved ranges=a": "", "digest data=a": "data: ", "comm ranks=0,": "", "scalar bits=4294967296": "",
	} {
		if e, _, err := Parse(line); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v; want an error that says %q", line, e, err, says)
		}
	}
}

// TestErrors: what a transcript asks that cannot be done is part of its output.
func TestErrors(t *testing.T) {
	s := &script{contract: &contract.Contract{ID: "C-X-001"}, runs: map[contract.Role]*trace.History{}, cut: map[contract.Role][]int{}}
	do := func(line, input string) string {
		d := &datadriven.TestData{Input: input}
		words := strings.Fields(line)
		d.Cmd = words[0]
		for _, w := range words[1:] {
			key, value, has := strings.Cut(w, "=")
			a := datadriven.CmdArg{Key: key}
			if has {
				a.Vals = []string{value}
			}
			d.CmdArgs = append(d.CmdArgs, a)
		}
		out, err := s.do(d)
		if err != nil {
			return err.Error()
		}
		return out
	}
	for _, c := range []struct{ line, input, want string }{
		{"events test", "end", `events: no run "test"`},
		{"run", "", "run: needs a role"},
		{"run test", "speed 9", "speed 9: no such setting"},
		{"run test", "steps many", "steps many: strconv.Atoi"},
		{"run test", "preset vast", "preset vast: "},
		{"run test", "plan dp=0", "plan dp=0: "},
		{"run test", "plan dp=2\n# a comment\n\ntied", "dp=2,microbatches=4 of nano, ranks: 2\n"},
		{"bend test", "", `no command "bend"`},
		{"events test ranks=2", "end", `rank "2": the world has 2 ranks`},
		{"events test", "end count=1", "end count=1: end event: count: an event of this kind has none"},
		{"events test", "end step=1", "2 events\n"},
		{"events test ranks=1", "scalar what={loss,norm} value={1,2}", "4 events\n"},
		{"change test", "scalar what=loss value=2 -> value=3 bits=7", "1 events changed\n"},
		{"change test", "scalar what=loss value=2 -> value=3", "0 events changed\n"},
		{"change test ranks=0", "scalar what=loss -> value=4", "0 events changed\n"},
		{"change test", "scalar what={loss,norm} -> value=4", "4 events changed\n"},
		{"change test", "scalar what=loss", "scalar what=loss: want fields, -> and fields"},
		{"change test", "scalar what=loss -> speed=4", "scalar what=loss -> speed=4: speed: no such field"},
		{"change test", "scalar what=loss -> count=4", "scalar what=loss -> count=4: scalar event: count: an event of this kind has none"},
		{"drop test", "scalar value=4 bits=7", "1 events fewer\n"},
		{"drop test", "scalar value=4", "3 events fewer\n"},
		{"drop test ranks=0", "end", "1 events fewer\n"},
		{"drop test", "end step=0", "0 events fewer\n"},
		{"judge clauses=1", "", "no clause C-X-001.1"},
		{"drill other", "", "drill other: world=0 repeats=1: must be at least 1"},
		{"drill other world=2 repeats=0", "", "drill other: world=2 repeats=0: must"},
		{"drill other world=two", "", "world: strconv.Atoi"},
		{"drill other world=1 repeats=2", "", "874 operations, 0 refused, ranks: 1\n"},
		{"drop other", "drill step=1", "437 events fewer\n"},
	} {
		if got := do(c.line, c.input); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}
