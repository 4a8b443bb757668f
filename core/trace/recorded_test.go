package trace_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// config is a small run that records everything.
func config(t *testing.T, name, p string) spec.Config {
	t.Helper()
	cfg, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse(p); err != nil {
		t.Fatal(err)
	}
	cfg.Model.SeqLen, cfg.Model.Layers, cfg.Steps = 5, 4, 2
	cfg.Recording = spec.Recording{Digests: true, Workers: true, Capture: p == "dp=3", Taps: true, KeepGoing: true}
	return cfg
}

func parts() launch.Parts {
	return launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }}
}

// written checks the history of a run, that of the last rank line by line.
func written(t *testing.T, out *launch.Outcome) {
	t.Helper()
	tracetest.Admitted(t, out.History)
	tracetest.Written(t, out.Logs[len(out.Logs)-1])
}

// TestRecordedRuns: what training records under every kind of plan has the form
// of the format.
func TestRecordedRuns(t *testing.T) {
	kinds := map[trace.Kind]bool{}
	for _, c := range []struct{ config, plan string }{
		{"nano", "dp=1"}, {"odd", "dp=3"}, {"nano", "dp=2,zero=1"}, {"odd", "dp=2,zero=2"}, {"nano", "dp=2,zero=3"},
		{"nano", "tp=4,vocab=parallel"}, {"odd", "dp=2,tp=2,pp=2"}, {"nano", "pp=2,schedule=interleaved,virtual=2"},
		{"nano", "dp=4,microbatches=4,comm=ring"}, {"nano", "dp=2,comm=star"}, {"odd", "tp=4"},
	} {
		t.Run(c.config+" "+c.plan, func(t *testing.T) {
			out, err := launch.Local(t.Context(), config(t, c.config, c.plan), data.Default(), parts())
			if err != nil {
				t.Fatal(err)
			}
			written(t, out)
			for e := range out.History.All {
				kinds[e.Kind] = true
			}
		})
	}
	// The others are below, of drills of communicators, kernels and devices, and of damaged
	// checkpoints.
	for _, f := range trace.Forms() {
		switch f.Kind {
		case trace.KindSkip, trace.KindResume, trace.KindDiff, trace.KindDrill, trace.KindRefusal, trace.KindKernel, trace.KindRoutine, trace.KindDevice,
			trace.KindStored, trace.KindFile, trace.KindTurns, trace.KindHazard:
		default:
			if !kinds[f.Kind] && !t.Failed() {
				t.Errorf("no run recorded %s", f.Kind)
			}
		}
	}
}

func TestRecordedResumption(t *testing.T) {
	dir, p := t.TempDir(), parts()
	cfg := config(t, "nano", "dp=2,zero=2")
	p.Checkpoints = train.Checkpoints{Dir: dir}
	if _, err := launch.Local(t.Context(), cfg, data.Default(), p); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir + "/" + checkpoint.DirName(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg = config(t, "nano", "tp=2,pp=2")
	cfg.Steps = 3
	p.Checkpoints = train.Checkpoints{Resume: c}
	out, err := launch.Local(t.Context(), cfg, data.Default(), p)
	if err != nil {
		t.Fatal(err)
	}
	written(t, out)
	has(t, out.History, trace.KindResume)
}

// faulty spoils what one rank receives of the reductions from its n-th on.
type faulty struct {
	comm.Communicator
	n     int
	spoil func(x kernels.Tensor) error
}

func (f *faulty) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if f.n--; f.n < 0 {
		return errors.Join(f.Communicator.AllReduce(ctx, x, op), f.spoil(x))
	}
	return f.Communicator.AllReduce(ctx, x, op)
}

// TestRecordedFailures: a rank that fails, replicas that differ, a step that no
// rank takes.
func TestRecordedFailures(t *testing.T) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(v float64) func(kernels.Tensor) error {
		return func(x kernels.Tensor) error { be.Fill(x, v); return nil }
	}
	for _, c := range []struct {
		name  string
		ranks []int
		spoil func(kernels.Tensor) error
		want  trace.Kind
	}{
		{"fails", []int{1}, func(kernels.Tensor) error { return errors.New("cable pulled") }, ""},
		{"differs", []int{1}, fill(1), trace.KindDiff},
		{"overflows", []int{0, 1}, fill(math.Inf(1)), trace.KindSkip},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parts()
			p.Comm = func(rank int, group names.Axis, of comm.Communicator) comm.Communicator {
				for _, r := range c.ranks {
					if r == rank && group == names.DP {
						return &faulty{Communicator: of, n: 4, spoil: c.spoil}
					}
				}
				return of
			}
			out, err := launch.Local(t.Context(), config(t, "nano", "dp=2"), data.Default(), p)
			if (err != nil) != (c.want == "") {
				t.Fatal(err)
			}
			written(t, out)
			if c.want != "" {
				has(t, out.History, c.want)
			}
		})
	}
}

func has(t *testing.T, h *trace.History, k trace.Kind) {
	t.Helper()
	for e := range h.All {
		if e.Kind == k {
			return
		}
	}
	t.Errorf("no %s was recorded", k)
}

// TestSchemaRefuses what Read refuses, as far as a schema of one line can.
func TestSchemaRefuses(t *testing.T) {
	s := tracetest.Compile(t, trace.JSONSchema())
	header := fmt.Sprintf(`{"schema":%q,"arithmetic":2,"rank":0,"world":2,"plan":"dp=2","model":"nano","backend":"ref","spec":{"observed":{}}}`, trace.Schema)
	event := `{"kind":"comm","rank":0,"step":0,"op":"all-reduce","group":"dp","ranks":[0,1],"seq":18446744073709551615}`
	for _, good := range []string{header, event} {
		if err := tracetest.Line(s, []byte(good)); err != nil {
			t.Fatalf("%s: %v", good, err)
		}
		if _, err := trace.Read(strings.NewReader(header+"\n"+strings.TrimPrefix(good, header)), "f"); err != nil {
			t.Fatalf("%s: %v", good, err)
		}
	}
	for _, c := range []struct{ line, old, with string }{
		{header, "history/v2", "history/v3"}, {header, `"world":2`, `"world":0`}, {header, `"world":2`, `"world":1048577`},
		{header, `"rank":0`, `"rank":-1`}, {header, `"backend"`, `"backends"`}, {header, `{"observed":{}}`, `{}`},
		{header, `{"observed":{}}`, `{"model":{}}`}, {header, `{"observed":{}}`, `{"observed":1}`}, {header, `{}`, `{},"drill":{}`},
		{event, `"comm"`, `"come"`}, {event, `"comm"`, `"end"`}, {event, `"op":"all-reduce",`, ""}, {event, "all-reduce", "all-to-all"},
		{event, `"dp"`, `"ep"`}, {event, `[0,1]`, `[0,0]`}, {event, `[0,1]`, `[-1]`}, {event, `[0,1]`, `[]`}, {event, `"step":0`, `"step":-2`},
		{event, `"seq":18446744073709551615`, `"seq":18446744073709551616`}, {event, `"seq":18446744073709551615`, `"text":1`},
		{event, `"seq":18446744073709551615`, `"count":-1`}, {event, `"seq":18446744073709551615`, `"count":1.5`},
		{event, `"seq":18446744073709551615`, `"value":1`},
	} {
		bad := strings.Replace(c.line, c.old, c.with, 1)
		if bad == c.line {
			t.Fatalf("%s has no %s", c.line, c.old)
		}
		if tracetest.Line(s, []byte(bad)) == nil {
			t.Errorf("the schema takes %s", bad)
		}
		text := header + "\n" + bad
		if c.line == header {
			text = bad
		}
		if _, err := trace.Read(strings.NewReader(text+"\n"), "f"); err == nil {
			t.Errorf("Read takes %s", bad)
		}
	}
}
