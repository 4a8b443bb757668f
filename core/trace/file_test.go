package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/kernels"
)

// fullEvent has a value in every field; odd ones where they exist.
func fullEvent() Event {
	return Event{Kind: KindDiff, Rank: 1, Step: -1, What: Weight, Tensor: "model.norm.weight", Unit: "block.3", Worker: 2, Micro: 3,
		Op: "all-reduce", Group: "dp", Ranks: []int{0, 3}, Overlap: true, Seq: 1<<63 + 1, Peer: 4, Lo: 5, Hi: 1 << 60, Count: -7, Bytes: 8, Moved: 9, Once: true,
		Digest: &kernels.Digest{A: 1 << 63, B: 2, NonFinite: 3}, Span: &kernels.Span{Space: "host", Lo: 1<<64 - 2, Hi: 1<<64 - 1},
		IDs: []int64{-1, 9}, Ranges: [][2]int64{{0, 1}, {4, 1 << 50}}, Value: Float(math.Inf(-1)), Bits: 0x7fc00000, Index: 10,
		Got: 0x80000000, Want: 1, Text: "a \"quoted\"\nline <&> \u2028",
		Data: Floats{0, math.Float32frombits(1 << 31), float32(math.Inf(1)), math.SmallestNonzeroFloat32, math.MaxFloat32}}
}

func fullHeader() Header {
	return Header{Schema: Schema, Arithmetic: 1, Rank: 1, World: 4, Case: "C-DDP-001/dp=4", Plan: "dp=4", Model: "nano", Backend: "ref",
		Spec: json.RawMessage(`{"seed":18446744073709551615}`)}
}

// assertNoZero fails where a field is zero: a new field must be added to the
// values above.
func assertNoZero(t *testing.T, v any) {
	t.Helper()
	r := reflect.ValueOf(v)
	for i := range r.NumField() {
		if r.Field(i).IsZero() {
			t.Errorf("%T.%s is zero here", v, r.Type().Field(i).Name)
		}
	}
}

func write(t *testing.T, l *Log) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEveryFieldComesBack(t *testing.T) {
	assertNoZero(t, fullEvent())
	assertNoZero(t, fullHeader())
	l := &Log{Header: fullHeader()}
	l.Record(fullEvent())
	l.Record(Event{Kind: KindEnd, Rank: 99}) // the log gives its own rank
	text := write(t, l)
	if n := bytes.Count(text, []byte("\n")); n != 3 {
		t.Errorf("%d lines, want header and two events", n)
	}
	got, err := Read(bytes.NewReader(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l.Header, got.Header); d != "" {
		t.Errorf("header: %s", d)
	}
	want := []Event{fullEvent(), {Kind: KindEnd, Rank: 1}}
	if d := cmp.Diff(want, got.Events()); d != "" {
		t.Errorf("events: %s", d)
	}
}

// Every bit of scalars and captured elements comes back, signs of zero and
// payloads of NaN included; a NaN scalar as some NaN.
func TestNumbersComeBack(t *testing.T) {
	inf := math.Inf(1)
	for _, x := range []float64{0, 1, -0.1, math.Pi, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e21, 123456789012345678, inf, -inf, math.NaN()} {
		b, err := json.Marshal(Float(x))
		if err != nil {
			t.Fatal(err)
		}
		var got Float
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if math.Float64bits(float64(got)) != math.Float64bits(x) && !(x != x && got != got) {
			t.Errorf("%v is written %s and comes back %v", x, b, got)
		}
	}
	words := []uint32{0, 1 << 31, 1, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0x3f800000}
	in := make(Floats, len(words))
	for i, w := range words {
		in[i] = math.Float32frombits(w)
	}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Floats
	if err := json.Unmarshal(b, &out); err != nil || len(out) != len(in) {
		t.Fatalf("%d elements come back (%v), want %d", len(out), err, len(in))
	}
	for i, w := range words {
		if got := math.Float32bits(out[i]); got != w {
			t.Errorf("bits %08x come back %08x", w, got)
		}
	}
}

// header is a valid first line for rank 0 of a world of two.
const header = `{"schema":"lockstep/history/v1","arithmetic":2,"rank":0,"world":2,"plan":"dp=2","model":"nano","backend":"ref"}` + "\n"

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"nothing":         {"", "f: empty"},
		"blank lines":     {"\n\n", "f: empty"},
		"foreign text":    {"step,loss\n1,2\n", "f:1: header"},
		"foreign JSON":    {`{"step":1,"loss":2}` + "\n", `f:1: schema "": want`},
		"version 1 bits":  {strings.Replace(header, "v1", "v2", 1), `f:1: schema "lockstep/history/v2": want "lockstep/history/v1"`},
		"version 1 bits":  {strings.Replace(header, `"arithmetic":2`, `"arithmetic":1`, 1), "f:1: canonical arithmetic version 1: this program has version 2"},
		"no world":        {strings.Replace(header, `"world":2`, `"world":0`, 1), "f:1: world of 0 ranks: want 1 to"},
		"a vast world":    {strings.Replace(header, `"world":2`, `"world":1048577`, 1), "f:1: world of 1048577 ranks"},
		"header cut off":  {header[:40], "f:1: header"},
		"event cut off":   {header + `{"kind":"end","rank":0}` + "\n" + `{"kind":"dig`, "f:3: "},
		"foreign event":   {header + "[]\n", "f:2: "},
		"binary":          {header + "\x00\xff\xfe\n", "f:2: "},
		"another's event": {header + `{"kind":"end","rank":1}` + "\n", "f:2: event of rank 1 in the history of rank 0"},
		"bad digest":      {header + `{"kind":"digest","rank":0,"digest":"12"}` + "\n", `f:2: digest "12"`},
		"bad data":        {header + `{"kind":"digest","rank":0,"data":"AAA="}` + "\n", "f:2: data of 2 bytes: not a multiple of 4"},
		"data not base64": {header + `{"kind":"digest","rank":0,"data":"?"}` + "\n", "f:2: "},
		"bad value":       {header + `{"kind":"scalar","rank":0,"value":"much"}` + "\n", "f:2: "},
		"a vast number":   {header + `{"kind":"end","rank":0,"seq":18446744073709551616}` + "\n", "f:2: "},
	} {
		if l, err := Read(strings.NewReader(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.says) || l != nil {
			t.Errorf("%s: got %v, want an error that says %q", name, err, c.says)
		}
	}
}

func TestReadBoundsLines(t *testing.T) {
	long := header + `{"kind":"end","rank":0,"text":"` + strings.Repeat("x", 5000) + `"}` + "\n"
	if _, err := read(strings.NewReader(long), "f", 4096); err == nil || !strings.Contains(err.Error(), "f: ") {
		t.Errorf("a line beyond the bound: %v", err)
	}
	if _, err := read(strings.NewReader(long), "f", 8192); err != nil {
		t.Errorf("a line within the bound: %v", err)
	}
}

// failing fails at the n-th byte.
type failing struct{ n int }

var errFull = errors.New("disk full")

func (f *failing) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteGivesTheWritersError(t *testing.T) {
	l := &Log{Header: fullHeader()}
	l.Record(fullEvent())
	size := len(write(t, l))
	for _, n := range []int{0, 200, size - 1} {
		if err := l.Write(&failing{n}); !errors.Is(err, errFull) {
			t.Errorf("a writer that fails at byte %d: %v", n, err)
		}
	}
	if err := l.Write(&failing{size}); err != nil {
		t.Error(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteFileLeavesAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	text := func(s string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, werr := io.WriteString(w, s)
			return errors.Join(err, werr)
		}
	}
	if err := WriteFile(path, text("old", nil)); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, text(strings.Repeat("new", 5000), errFull)); !errors.Is(err, errFull) {
		t.Errorf("got %v, want the writer's error", err)
	}
	if b, err := os.ReadFile(path); string(b) != "old" || err != nil {
		t.Errorf("after an error the file holds %.20q (%v)", b, err)
	}
	if got := files(t, dir); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("after an error the directory holds %v", got)
	}
	if err := WriteFile(path, text("new", nil)); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("the file holds %q", b)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode is %v (%v)", info.Mode(), err)
	}
}

func TestWriteFileOverADirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "inside"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(io.Writer) error { return nil }
	if err := WriteFile(path, write); err == nil {
		t.Error("a directory was replaced")
	}
	if got := files(t, dir); !cmp.Equal(got, []string{"taken"}) {
		t.Errorf("after an error the directory holds %v", got)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "a"), write); err == nil {
		t.Error("a file was written to a missing directory")
	}
}

// Whatever the bytes, Read does not panic, and what it accepts is written so
// that it comes back the same.
func FuzzRead(f *testing.F) {
	l := &Log{Header: fullHeader()}
	l.Record(fullEvent())
	var full bytes.Buffer
	if err := l.Write(&full); err != nil {
		f.Fatal(err)
	}
	f.Add(full.Bytes())
	f.Add(full.Bytes()[:full.Len()/2])
	f.Add([]byte(header + `{"kind":"scalar","rank":0,"value":"NaN"}` + "\n"))
	f.Add([]byte(header + "\n" + `{"KIND":"digest","digest":"00000000000000000000000000000000!7x","ranks":null}`))
	f.Add([]byte(header + `{"value":-0,"data":"AAAAgA==","span":{}}`))
	f.Add([]byte("\n" + header))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := read(bytes.NewReader(b), "f", 1<<16)
		if err != nil {
			return
		}
		once := write(t, l)
		again, err := Read(bytes.NewReader(once), "f")
		if err != nil {
			t.Fatalf("what was read is written as\n%s\nwhich is refused: %v", once, err)
		}
		if twice := write(t, again); !bytes.Equal(once, twice) {
			t.Fatalf("written\n%s\nread and written again\n%s", once, twice)
		}
	})
}
