package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-ml/lockstep/kernels"
)

// logs are the logs of a run of n ranks with an event each, ranks descending.
func logs(n int) []*Log {
	var out []*Log
	for r := n - 1; r >= 0; r-- {
		l := &Log{Header: Header{Schema: Schema, Arithmetic: kernels.Arithmetic, Rank: r, World: n, Case: "c", Plan: "dp=3", Model: "nano", Spec: Spec{Lockstep: json.RawMessage(`{"seed":1}`)}}}
		l.Record(Event{Kind: KindTokens, Step: r})
		l.Record(Event{Kind: KindEnd})
		out = append(out, l)
	}
	return out
}

func TestMerge(t *testing.T) {
	h, err := Merge(logs(3))
	if err != nil {
		t.Fatal(err)
	}
	if h.Header.Rank != 0 || len(h.Missing()) != 0 {
		t.Errorf("header of rank %d, missing %v", h.Header.Rank, h.Missing())
	}
	var order []int
	for e := range h.All {
		order = append(order, e.Rank)
		if e.Kind == KindTokens && e.Step != e.Rank {
			t.Errorf("rank %d has the event of rank %d", e.Rank, e.Step)
		}
	}
	if want := []int{0, 0, 1, 1, 2, 2}; !cmp.Equal(order, want) {
		t.Errorf("events come from ranks %v, want %v", order, want)
	}
	n := 0
	for range h.All {
		if n++; n == 3 {
			break // must end the ranks too
		}
	}
}

func TestMergeOfSomeRanks(t *testing.T) {
	h, err := Merge(logs(4)[1:3])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.Missing(), []int{0, 3}; !cmp.Equal(got, want) || h.Header.Rank != 1 {
		t.Errorf("missing %v and header of rank %d, want %v and 1", got, h.Header.Rank, want)
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, c := range []struct {
		change func(*Header)
		says   string
	}{
		{func(h *Header) { h.Schema = "x" }, "histories of ranks 0 and 1 are not of one run: schema"},
		{func(h *Header) { h.Arithmetic++ }, `arithmetic "2" and "3"`},
		{func(h *Header) { h.World = 4 }, `world "3" and "4"`},
		{func(h *Header) { h.Case = "d" }, `case "c" and "d"`},
		{func(h *Header) { h.Plan = "dp=1" }, `plan "dp=3" and "dp=1"`},
		{func(h *Header) { h.Model = "odd" }, `model "nano" and "odd"`},
		{func(h *Header) { h.Spec.Lockstep = json.RawMessage(`{"seed":2}`) }, `spec "{\"lockstep\":{\"seed\":1}}" and`},
		{func(h *Header) { h.Spec = Spec{Drill: h.Spec.Lockstep} }, "spec"},
		{func(h *Header) { h.Rank = 2 }, "two histories of rank 2"},
		{func(h *Header) { h.Rank = 3 }, "history of rank 3: the world has 3 ranks"},
		{func(h *Header) { h.Rank = -1 }, "history of rank -1"},
	} {
		ls := logs(3)
		c.change(&ls[1].Header)
		if _, err := Merge(ls); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want an error that says %q", err, c.says)
		}
	}
	if _, err := Merge(nil); err == nil {
		t.Error("nothing was merged")
	}
}

// TestOrigins: backends may differ, that is how they are compared, and so may
// hosts; every rank keeps its own when a history is saved.
func TestOrigins(t *testing.T) {
	ls := logs(3)
	var want []Header
	for i, l := range ls {
		l.Header.Backend, l.Header.Host, l.Header.Process, l.Header.Device = "cpu", "n"+string(rune('0'+i)), i, "gpu"
		want = append(want, l.Header)
	}
	h, err := Merge(ls)
	if err != nil {
		t.Fatal(err)
	}
	delete(h.Origins, 2) // of a history that is put together without one
	want[0].Host, want[0].Process = want[2].Host, want[2].Process
	dir := t.TempDir()
	if err := h.Save(dir); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"0002.ndjson", "0001.ndjson", "0000.ndjson"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := Read(f, name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[i], got.Header); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestBackends: each that a rank has is named once, also where a rank has none of its own.
func TestBackends(t *testing.T) {
	ls := logs(4)
	for i, name := range []string{"b", "a", "b", "c"} {
		ls[3-i].Header.Rank, ls[3-i].Header.Backend = i, name
	}
	h, err := Merge(ls)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Backends(); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("%q", got)
	}
	delete(h.Origins, 1)
	if got := h.Backends(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("without that of rank 1: %q", got)
	}
	if got := (&History{Header: Header{Backend: "x"}}).Backends(); !slices.Equal(got, []string{"x"}) {
		t.Errorf("of a history without ranks: %q", got)
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	h, err := Merge(logs(3))
	if err != nil {
		t.Fatal(err)
	}
	delete(h.Ranks, 1) // as after a crash
	delete(h.Origins, 1)
	for _, sub := range []string{"b", "a/deep"} {
		if err := h.Save(filepath.Join(dir, sub)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("not a history"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d histories, want 2", len(got))
	}
	for i, g := range got {
		if want := filepath.Join(dir, []string{"a/deep", "b"}[i]); g.Dir != want {
			t.Errorf("history %d is of %s, want %s", i, g.Dir, want)
		}
		if g.Dir = ""; !cmp.Equal(h, g) {
			d := cmp.Diff(h, g)
			t.Errorf("a history came back changed: %s", d)
		}
	}
	if got, want := listed(t, filepath.Join(dir, "b")), []string{"0000.ndjson", "0002.ndjson"}; !cmp.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	empty := t.TempDir()
	if _, err := Load(empty); err == nil || !strings.Contains(err.Error(), empty+": no history") {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := Load(filepath.Join(empty, "missing")); err == nil {
		t.Error("a missing directory was loaded")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"0000.ndjson": header, "0001.ndjson": header} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir+": two histories of rank 0") {
		t.Errorf("two files of one rank: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0001.ndjson"), []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "0001.ndjson")+":1") {
		t.Errorf("a broken file: %v", err)
	}
}

// Events of many goroutines are all kept, and Events is a copy.
func TestRecordIsSafe(t *testing.T) {
	l := &Log{}
	Record(nil, Event{}) // no recorder: nothing happens
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				Record(l, Event{Kind: KindEnd})
			}
		})
	}
	all.Wait()
	events := l.Events()
	if len(events) != 800 {
		t.Errorf("%d events, want 800", len(events))
	}
	events[0].Kind = "changed"
	if l.Events()[0].Kind != KindEnd {
		t.Error("the log's own events were handed out")
	}
}
