package data

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// TestDefaultFrozen: the golden runs train on this text.
func TestDefaultFrozen(t *testing.T) {
	const want = "f65fcb4b5d6435f48f5ca8cb4e20313a1e42f17e0e218c8bc980a96cd7c6049c"
	d := Default()
	if got := d.Hash(); got != want {
		t.Errorf("hash %s, want %s: the default text never changes", got, want)
	}
	if len(d.Bytes) < 16<<10 {
		t.Errorf("%d bytes, want at least 16 KiB", len(d.Bytes))
	}
	for i, b := range d.Bytes {
		if b != '\n' && (b < ' ' || b > '~') {
			t.Fatalf("byte %#x at %d is not plain ASCII", b, i)
		}
	}
	shortest, longest := len(d.Bytes), 0
	for _, p := range paragraphs(d.Bytes) {
		shortest, longest = min(shortest, p.Len()), max(longest, p.Len())
	}
	if shortest > 20 || longest < 1000 {
		t.Errorf("paragraphs of %d to %d bytes, want very unequal ones", shortest, longest)
	}
	d.Bytes[0] ^= 1
	if got := Default().Hash(); got != want {
		t.Errorf("writing to one copy changed the next")
	}
}

func TestParagraphs(t *testing.T) {
	for in, want := range map[string][]string{
		"":                     nil,
		"a":                    {"a"},
		"a\nb":                 {"a\nb"},
		"a\n\nb":               {"a\n\n", "b"},
		"a\n\n\n\nb\nc\n\n":    {"a\n\n\n\n", "b\nc\n\n"},
		"\n\na":                {"\n\n", "a"},
		"\n\n":                 {"\n\n"},
		"a\r\n\r\nb\r\nc":      {"a\r\n\r\n", "b\r\nc"},
		"a\r\r\rb\n\r":         {"a\r\r\rb\n\r"},
		"a\n \nb\x00\xff\n\nc": {"a\n \nb\x00\xff\n\n", "c"},
	} {
		var got []string
		for _, p := range paragraphs([]byte(in)) {
			got = append(got, in[p.Lo:p.Hi])
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", in, d)
		}
	}
}

// TestStepByHand writes out a text of 4, 1 and 3 predictions at SeqLen 3.
func TestStepByHand(t *testing.T) {
	s, err := New(Text{"hand", []byte("abc\n\n\n\nx\n\ny\n")}, Options{SeqLen: 3, PerStep: 2, Vocab: 128, Blank: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 4 || s.Steps() != 2 {
		t.Fatalf("%d sequences and %d steps, want 4 and 2", s.Len(), s.Steps())
	}
	i := Ignore
	want := [][]Sequence{
		{{[]int32{'a', 'b', 'c'}, []int32{'b', 'c', '\n'}, 3}, {[]int32{'\n', '\n', '\n'}, []int32{i, i, i}, 0}},
		{{[]int32{'x', '\n', 0}, []int32{'\n', '\n', i}, 2}, {[]int32{'y', 0, 0}, []int32{i, i, i}, 0}},
	}
	for step := range 4 { // two epochs
		if d := cmp.Diff(want[step%2], s.Step(step)); d != "" {
			t.Errorf("step %d: %s", step, d)
		}
		if d := cmp.Diff([]int{step % 2 * 2, step%2*2 + 1}, s.IDs(step)); d != "" {
			t.Errorf("step %d: ids: %s", step, d)
		}
	}
	if d := cmp.Diff([]int{3, 2, 3}, []int{s.Valid(0), s.Valid(1), s.Valid(2)}); d != "" {
		t.Error(d)
	}
}

func TestLastStep(t *testing.T) {
	text := Text{"five", []byte("ab\n\ncd\n\nef\n\ngh\n\nij")} // five paragraphs, SeqLen 4: five sequences
	for _, c := range []struct {
		policy     Policy
		per, steps int
		last       []int
	}{
		{"", 2, 2, []int{2, 3}}, {Drop, 2, 2, []int{2, 3}}, {Drop, 5, 1, []int{0, 1, 2, 3, 4}}, {Drop, 1, 5, []int{4}},
		{Pad, 2, 3, []int{4, -1}}, {Pad, 5, 1, []int{0, 1, 2, 3, 4}}, {Pad, 7, 1, []int{0, 1, 2, 3, 4, -1, -1}},
	} {
		s, err := New(text, Options{SeqLen: 4, PerStep: c.per, Vocab: 256, LastStep: c.policy})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.last, s.IDs(c.steps-1)); s.Steps() != c.steps || d != "" {
			t.Errorf("%q, %d per step: %d steps, want %d; last step %s", c.policy, c.per, s.Steps(), c.steps, d)
		}
		for i, q := range s.Step(c.steps - 1) {
			if pad := c.last[i] < 0; pad != (q.Valid == 0) || pad && q.Tokens[0] != 0 {
				t.Errorf("%q, %d per step: position %d has %d valid tokens of sequence %d", c.policy, c.per, i, q.Valid, c.last[i])
			}
		}
		if d := cmp.Diff(s.Step(0), s.Step(c.steps)); d != "" {
			t.Errorf("%q, %d per step: the second epoch differs: %s", c.policy, c.per, d)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	ok := Options{SeqLen: 4, PerStep: 2, Vocab: 256}
	text := "ab\n\ncd\n\nef"
	for _, c := range []struct {
		name, text string
		change     func(*Options)
		want       []string
	}{
		{"sequence length", text, func(o *Options) { o.SeqLen = 0 }, []string{"sequence length 0", "at least 1"}},
		{"batch", text, func(o *Options) { o.PerStep = -3 }, []string{"-3 sequences per step", "at least 1"}},
		{"tokens of a step", text, func(o *Options) { o.PerStep, o.SeqLen = 1<<40, 1<<40 }, []string{"1099511627776", "at most 2147483647"}},
		{"vocabulary", text, func(o *Options) { o.Vocab = 0 }, []string{"vocabulary size 0"}},
		{"byte", text, func(o *Options) { o.Vocab = 'f' }, []string{"byte 102 at offset 9", "vocabulary size 102"}},
		{"policy", text, func(o *Options) { o.LastStep = "keep" }, []string{`"keep"`, `"drop"`, `"pad"`}},
		{"blank", text, func(o *Options) { o.Blank = []int{0, 2} }, []string{"blank position 2", "[0,2)"}},
		{"negative blank", text, func(o *Options) { o.Blank = []int{-1} }, []string{"blank position -1", "[0,2)"}},
		{"all blank", text, func(o *Options) { o.Blank = []int{0, 1} }, []string{"step 0", "[0 1]"}},
		{"last step blank", text, func(o *Options) { o.Blank, o.LastStep = []int{0}, Pad }, []string{"step 1", "[0]"}},
		{"short", text, func(o *Options) { o.PerStep = 4 }, []string{"10 bytes make 3 sequences", "the 4 of one step"}},
		{"empty", "", func(o *Options) {}, []string{"0 bytes make 0 sequences", "the 2 of one step"}},
		{"one byte", "a", func(o *Options) { o.LastStep = Pad }, []string{"1 bytes make 0 sequences", "at least 1"}},
	} {
		o := ok
		c.change(&o)
		s, err := New(Text{"planted", []byte(c.text)}, o)
		if err == nil {
			t.Errorf("%s: accepted: %d steps", c.name, s.Steps())
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", c.name, err, w)
			}
		}
	}
}

// checkLaws states what holds of every set: pieces rebuild the paragraphs byte
// for byte, targets follow tokens, counts agree.
func checkLaws(t *testing.T, s *Set) {
	t.Helper()
	var rebuilt []byte
	end := -1 // where the last piece ended
	for _, p := range s.pieces {
		if p.n < 1 || p.n > s.o.SeqLen {
			t.Fatalf("a piece of %d predictions at SeqLen %d", p.n, s.o.SeqLen)
		}
		if p.lo != end { // a new paragraph, perhaps after dropped single bytes
			rebuilt = append(rebuilt, s.text.Bytes[end+1:p.lo+1]...)
		}
		rebuilt = append(rebuilt, s.text.Bytes[p.lo+1:p.lo+p.n+1]...)
		end = p.lo + p.n
	}
	if rebuilt = append(rebuilt, s.text.Bytes[end+1:]...); !bytes.Equal(rebuilt, s.text.Bytes) {
		t.Fatalf("pieces give %q, want %q", rebuilt, s.text.Bytes)
	}
	for step := range s.Steps() + 1 {
		valid, ids := 0, s.IDs(step)
		for i, q := range s.Step(step) {
			valid += checkSequence(t, s, q, ids[i], s.blank[i])
		}
		if valid != s.Valid(step) || valid == 0 {
			t.Fatalf("step %d: %d valid targets, Valid says %d", step, valid, s.Valid(step))
		}
	}
}

// checkSequence compares one sequence with the text and counts its targets.
func checkSequence(t *testing.T, s *Set, q Sequence, id int, blank bool) (valid int) {
	t.Helper()
	if len(q.Tokens) != s.o.SeqLen || len(q.Targets) != s.o.SeqLen {
		t.Fatalf("sequence %d: %d tokens and %d targets, want %d", id, len(q.Tokens), len(q.Targets), s.o.SeqLen)
	}
	for i, y := range q.Targets {
		var tok, target int32 = 0, Ignore
		if id >= 0 && i < s.pieces[id].n {
			at := s.pieces[id].lo + i
			tok = int32(s.text.Bytes[at])
			if !blank {
				target = int32(s.text.Bytes[at+1])
			}
		}
		if q.Tokens[i] != tok || y != target {
			t.Fatalf("sequence %d, position %d: token %d -> %d, want %d -> %d", id, i, q.Tokens[i], y, tok, target)
		}
		if y != Ignore {
			valid++
		}
	}
	if q.Valid != valid {
		t.Fatalf("sequence %d: Valid %d, but %d targets", id, q.Valid, valid)
	}
	return valid
}

// TestParagraphsRebuild: the first token and all targets of a paragraph's
// pieces, one after another, are the paragraph.
func TestParagraphsRebuild(t *testing.T) {
	d := Default()
	for _, seqLen := range []int{1, 2, 31, 32, 33, 45, 100000} {
		s, err := New(d, Options{SeqLen: seqLen, PerStep: 1, Vocab: 256})
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for _, p := range paragraphs(d.Bytes) {
			var got []byte
			for ; next < s.Len() && p.Has(s.pieces[next].lo); next++ {
				q := s.Step(next)[0]
				if got == nil {
					got = append(got, byte(q.Tokens[0]))
				}
				for _, y := range q.Targets[:q.Valid] {
					got = append(got, byte(y))
				}
			}
			if want := d.Bytes[p.Lo:p.Hi]; !bytes.Equal(got, want) {
				t.Fatalf("SeqLen %d: pieces give %q, want %q", seqLen, got, want)
			}
		}
	}
}

// TestFixtures: the two fixtures of the project have what they are for: unequal
// counts, and for the second one sequence without a valid token.
func TestFixtures(t *testing.T) {
	for _, o := range []Options{{SeqLen: 32, PerStep: 16, Vocab: 256}, {SeqLen: 45, PerStep: 13, Vocab: 258, Blank: []int{5}, LastStep: Pad}} {
		s, err := New(Default(), o)
		if err != nil {
			t.Fatal(err)
		}
		checkLaws(t, s)
		counts := map[int]bool{}
		for step := range s.Steps() {
			for _, q := range s.Step(step) {
				counts[q.Valid] = true
			}
		}
		if len(counts) < 10 || counts[0] != (len(o.Blank) > 0) {
			t.Errorf("%+v: valid counts %v", o, counts)
		}
	}
}

func TestShardVectors(t *testing.T) {
	for _, c := range []struct {
		items, workers int
		want           [][]int
	}{
		{10, 2, [][]int{{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}}},
		{7, 3, [][]int{{0, 3, 6}, {1, 4}, {2, 5}}},
		{5, 1, [][]int{{0, 1, 2, 3, 4}}},
		{2, 4, [][]int{{0}, {1}, nil, nil}},
	} {
		for w, want := range c.want {
			got, err := Shard(c.items, shard.Part{Index: w, Size: c.workers})
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("%d items, worker %d of %d: %v %s", c.items, w, c.workers, err, d)
			}
		}
	}
}

// TestShardsPartition: shards are disjoint, cover the step, and differ by at
// most one sequence.
func TestShardsPartition(t *testing.T) {
	for workers := 1; workers <= 9; workers++ {
		for items := range 21 {
			owner := map[int]int{}
			for w := range workers {
				got, err := Shard(items, shard.Part{Index: w, Size: workers})
				if err != nil {
					t.Fatal(err)
				}
				if n := len(got); n != items/workers && n != items/workers+1 {
					t.Errorf("%d items, worker %d of %d has %d", items, w, workers, n)
				}
				for _, i := range got {
					if o, taken := owner[i]; taken || i < 0 || i >= items {
						t.Errorf("%d items, worker %d of %d takes %d, also worker %d's (%v)", items, w, workers, i, o, taken)
					}
					owner[i] = w
				}
			}
			if len(owner) != items {
				t.Errorf("%d items on %d workers: %d taken", items, workers, len(owner))
			}
		}
	}
}

func TestShardRefuses(t *testing.T) {
	for _, c := range []struct {
		items       int
		index, size int
		want        string
	}{{10, 0, 0, "size 0"}, {10, 2, 2, "rank 2"}, {10, -1, 2, "rank -1"}, {-1, 0, 1, "-1 sequences"}} {
		got, err := Shard(c.items, shard.Part{Index: c.index, Size: c.size})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("worker %d of %d: %v, %v, want an error with %q", c.index, c.size, got, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "corpus.bin")
	want := []byte("any bytes \x00\xff\n\n")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if d := cmp.Diff(Text{path, want}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	large := filepath.Join(dir, "large")
	for path, size := range map[string]int64{empty: 0, large: maxText + 1} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil { // sparse
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "missing"), "no such file"}, {dir, "is a directory"}, {empty, "is empty"},
		{large, fmt.Sprintf("has %d bytes: must have at most %d", maxText+1, maxText)},
		{os.DevNull, "must be a regular file"}, {filepath.Join(empty, "below"), "not a directory"}, {"bad\x00name", "invalid argument"},
	} {
		_, err := Load(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.path)) {
			t.Errorf("%q: error %v, want the path and %q", c.path, err, c.want)
		}
	}
}

// FuzzNew: whatever the text and the options, New gives an error or a set that
// keeps the laws.
func FuzzNew(f *testing.F) {
	f.Add([]byte("ab\n\ncd"), 3, 2, 256, "pad", 1)
	f.Add([]byte("\n\n\n\n"), 1, 1, 11, "drop", -1)
	f.Add([]byte{}, 0, -1, 0, "", 0)
	f.Add([]byte("a\r\n\r\nbcdefghijkl\n\n\xff"), 4, 3, 256, "", 2)
	f.Fuzz(func(t *testing.T, b []byte, seqLen, perStep, vocab int, policy string, blank int) {
		if seqLen > 1000 || perStep > 1000 {
			return // only memory
		}
		s, err := New(Text{"fuzz", b}, Options{SeqLen: seqLen, PerStep: perStep, Vocab: vocab, LastStep: Policy(policy), Blank: []int{blank}})
		if err != nil {
			if len(err.Error()) < 20 {
				t.Errorf("error %q explains nothing", err)
			}
			return
		}
		checkLaws(t, s)
	})
}

// TestBeginnings: the beginning that ends with the n-th sequence makes exactly the
// first n, and its name finds it again.
func TestBeginnings(t *testing.T) {
	text := Default()
	o := Options{SeqLen: 11, PerStep: 3, Vocab: 256}
	whole, err := New(text, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, 4, 50, whole.Len() - 1, whole.Len()} {
		head := text.Head(whole.End(n))
		set, err := New(head, o)
		if err != nil {
			t.Fatal(err)
		}
		if set.Len() != n {
			t.Errorf("%s: %d sequences, want %d", head.Name, set.Len(), n)
		}
		last := (n/3 - 1)
		if diff := cmp.Diff(whole.Step(last), set.Step(last)); diff != "" {
			t.Errorf("%s: step %d (-whole +head):\n%s", head.Name, last, diff)
		}
		again, err := Part(head.Name, func(name string) (Text, error) { return Default(), nil })
		if n < whole.Len() && (err != nil || again.Name != head.Name || again.Hash() != head.Hash()) {
			t.Errorf("%s is not found by its name: %v", head.Name, err)
		}
	}
	if whole.End(0) != 0 || text.Head(len(text.Bytes)).Name != text.Name {
		t.Error("no sequences need a byte, or the whole text is called a part")
	}
	for _, name := range []string{"", "default", "[:5]", "a[:]", "a[:0]", "a[:-1]", "a[:05]", "a[:5", "a[5]", "a[:5]b"} {
		if whole, n, ok := Beginning(name); ok {
			t.Errorf("%q is taken for %d bytes of %q", name, n, whole)
		}
	}
	if _, err := Part("x[:9]", func(string) (Text, error) { return Text{Bytes: []byte("12345678")}, nil }); err == nil {
		t.Error("9 bytes of a text of 8 are accepted")
	}
}
