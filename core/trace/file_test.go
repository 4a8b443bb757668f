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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// sample has a value in every field that some kind has; odd ones where they
// exist.
func sample() Event {
	return Event{Rank: 1, What: Weight, Tensor: "model.norm.weight", Unit: "block.3", Worker: 2, Micro: 3,
		Op: names.OpSend, Group: names.DP, Ranks: []int{3, 0}, Overlap: true, Seq: 1<<63 + 1, Peer: 2, Lo: 5, Hi: 1 << 60, Count: 5, Bytes: 8, Moved: 9, Once: true,
		Digest: &kernels.Digest{A: 1 << 63, B: 2, NonFinite: 3}, Squares: 0.1, Span: &kernels.Span{Space: "host", Lo: 1<<64 - 2, Hi: 1<<64 - 1},
		IDs: []int64{-1, 9}, Ranges: [][2]int64{{0, 1}, {1<<50 - 4, 1 << 50}}, Value: Float(math.Inf(-1)), Bits: 0x7fc00000, Index: 10,
		Got: 0x80000000, Want: 1, Text: "a \"quoted\"\nline <&> \u2028",
		Data: Floats{0, math.Float32frombits(1 << 31), float32(math.Inf(1)), math.SmallestNonzeroFloat32, math.MaxFloat32}}
}

// samples are valid events: of every form one with all its fields, and one with
// those only that it needs.
func samples() []Event {
	var out []Event
	for _, f := range Forms() {
		for _, list := range [][]string{slices.Concat(f.Needs, f.May), f.Needs} {
			e := Event{Kind: f.Kind, Rank: 1, Step: f.First}
			from, to := reflect.ValueOf(sample()), reflect.ValueOf(&e).Elem()
			for i := range to.NumField() {
				if slices.Contains(list, jsonName(to.Type().Field(i))) {
					to.Field(i).Set(from.Field(i))
				}
			}
			if f.Kind == KindTap && e.Data != nil {
				e.Hi = e.Lo + 1 // rows of one column
			}
			if f.What != nil && e.What != "" {
				e.What = f.What[len(f.What)-1].Name
			}
			if e.Op != "" && !slices.Contains(f.Op, e.Op) {
				e.Op = f.Op[0]
			}
			if e.Digest != nil && e.Count == 0 {
				e.Digest = &kernels.Digest{A: 1}
			}
			out = append(out, e)
		}
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func fullHeader() Header {
	return Header{Schema: Schema, Arithmetic: kernels.Arithmetic, Rank: 1, World: 4, Case: "C-DDP-001/dp=4", Plan: "dp=4", Model: "nano", Backend: "ref",
		Host: "n1", Process: 2, Device: "gpu 3", Spec: Spec{Lockstep: json.RawMessage(`{"seed":18446744073709551615}`)}}
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
	assertNoZero(t, fullHeader())
	l := &Log{Header: fullHeader()}
	var any Event
	for _, e := range samples() {
		l.Record(e)
		merge(&any, e)
	}
	assertNoZero(t, any)
	l.Record(Event{Kind: KindEnd, Rank: 99}) // the log gives its own rank
	want := append(samples(), Event{Kind: KindEnd, Rank: 1})
	text := write(t, l)
	if n := bytes.Count(text, []byte("\n")); n != 1+len(want) {
		t.Errorf("%d lines, want header and %d events", n, len(want))
	}
	got, err := Read(bytes.NewReader(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l.Header, got.Header); d != "" {
		t.Errorf("header: %s", d)
	}
	if d := cmp.Diff(want, got.Events()); d != "" {
		t.Errorf("events: %s", d)
	}
}

// merge sets the fields of all that e has.
func merge(all *Event, e Event) {
	from, to := reflect.ValueOf(e), reflect.ValueOf(all).Elem()
	for i := range to.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// Every bit of scalars and captured elements comes back, signs of zero and
// payloads of NaN included; a NaN scalar as some NaN.
// A learning rate of 0 is a value and stands in the file; other kinds have none.
func TestScalarsOfZeroAreWritten(t *testing.T) {
	var l Log
	l.Header = Header{Schema: Schema, World: 1}
	l.Record(Event{Kind: KindScalar, Step: 3, What: LR})
	l.Record(Event{Kind: KindTokens, Step: 3, Count: 1})
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.Count(s, `"value":0`) != 1 || !strings.Contains(s, `"what":"lr","value":0}`) {
		t.Errorf("written:\n%s", s)
	}
	back, err := Read(&b, "history")
	if err != nil || len(back.Events()) != 2 || back.Events()[0].Value != 0 {
		t.Errorf("comes back as %+v, %v", back, err)
	}
}

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
const header = `{"schema":"lockstep/history/v2","arithmetic":2,"rank":0,"world":2,"plan":"dp=2","model":"nano","backend":"ref"}` + "\n"

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"nothing":          {"", "f: empty"},
		"blank lines":      {"\n\n", "f: empty"},
		"foreign text":     {"step,loss\n1,2\n", "f:1: header"},
		"foreign JSON":     {`{"step":1,"loss":2}` + "\n", `f:1: schema "": want`},
		"another version":  {strings.Replace(header, "v2", "v3", 1), `f:1: schema "lockstep/history/v3": want "lockstep/history/v2"`},
		"version 1":        {strings.Replace(header, "v2", "v1", 1), `f:1: schema "lockstep/history/v1", in which spec is not yet {"lockstep": {...}}: want "lockstep/history/v2"`},
		"a bare spec":      {strings.Replace(header, `"ref"`, `"ref","spec":{"model":{},"steps":1}`, 1), `f:1: header: spec: has "model": must be {"lockstep"`},
		"an empty spec":    {strings.Replace(header, `"ref"`, `"ref","spec":{}`, 1), "f:1: header: spec: has 0 of lockstep, drill and observed"},
		"two specs":        {strings.Replace(header, `"ref"`, `"ref","spec":{"drill":{},"observed":{}}`, 1), "f:1: header: spec: has 2 of"},
		"no spec, null":    {strings.Replace(header, `"ref"`, `"ref","spec":null`, 1), "f:1: header: spec: has 0 of"},
		"a spec in words":  {strings.Replace(header, `"ref"`, `"ref","spec":{"observed":"torch"}`, 1), `f:1: header: spec: observed: "\"torch\"" is no JSON object`},
		"rank beyond":      {strings.Replace(header, `"rank":0`, `"rank":2`, 1), "f:1: history of rank 2: the world has 2 ranks"},
		"rank below":       {strings.Replace(header, `"rank":0`, `"rank":-1`, 1), "f:1: history of rank -1"},
		"arithmetic":       {strings.Replace(header, `"arithmetic":2`, `"arithmetic":-1`, 1), "f:1: canonical arithmetic version -1: this program has version 2"},
		"process":          {strings.Replace(header, `"ref"`, `"ref","process":-3`, 1), "f:1: process -3: must not be negative"},
		"no world":         {strings.Replace(header, `"world":2`, `"world":0`, 1), "f:1: world of 0 ranks: want 1 to"},
		"a vast world":     {strings.Replace(header, `"world":2`, `"world":1048577`, 1), "f:1: world of 1048577 ranks"},
		"header cut off":   {header[:40], "f:1: header"},
		"event cut off":    {header + `{"kind":"end","rank":0}` + "\n" + `{"kind":"dig`, "f:3: "},
		"foreign event":    {header + "[]\n", "f:2: "},
		"binary":           {header + "\x00\xff\xfe\n", "f:2: "},
		"another's event":  {header + `{"kind":"end","rank":1}` + "\n", "f:2: event of rank 1 in the history of rank 0"},
		"a field too many": {header + `{"kind":"end","rank":0,"stp":1}` + "\n", `f:2: json: unknown field "stp"`},
		"one of a header":  {strings.Replace(header, `"ref"`, `"ref","hosts":1`, 1), `f:1: header: json: unknown field "hosts"`},
		"two on a line":    {header + `{"kind":"end","rank":0}{"kind":"end","rank":0}` + "\n", `f:2: "{\"kind\":\"end\",\"rank\"" after the end of the value`},
		"half a value":     {header + `{"kind":"end",` + "\n" + `"rank":0}` + "\n", "f:2: unexpected EOF"},
		"bad digest":       {header + `{"kind":"digest","rank":0,"digest":"12"}` + "\n", `f:2: digest "12"`},
		"bad data":         {header + `{"kind":"digest","rank":0,"data":"AAA="}` + "\n", "f:2: data of 2 bytes: not a multiple of 4"},
		"data not base64":  {header + `{"kind":"digest","rank":0,"data":"?"}` + "\n", "f:2: "},
		"bad value":        {header + `{"kind":"scalar","rank":0,"value":"much"}` + "\n", "f:2: "},
		"a vast number":    {header + `{"kind":"end","rank":0,"seq":18446744073709551616}` + "\n", "f:2: "},
	} {
		if l, err := Read(strings.NewReader(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.says) || l != nil {
			t.Errorf("%s: got %v, want an error that says %q", name, err, c.says)
		}
	}
}

// A writer that is killed may leave part of a line behind: what is before it is there.
func TestReadWhatAKilledWriterLeft(t *testing.T) {
	event := `{"kind":"scalar","rank":0,"step":3,"what":"loss","value":1}` + "\n"
	for cut := range len(event) - 1 {
		l, err := Read(strings.NewReader(header+event+event[:cut]), "f")
		if err != nil || len(l.events) != 1 || l.damage != "" {
			t.Fatalf("%d bytes of a line: %v", cut, err)
		}
		if _, err := Receive(strings.NewReader(header+event+event[:cut]), "f"); cut > 0 && err == nil {
			t.Errorf("%d bytes of a line that came from another process are taken", cut)
		}
		if _, err := Read(strings.NewReader(header+event+event[:cut]+"\n"+event), "f"); cut > 0 && err == nil {
			t.Errorf("%d bytes of a line in the middle are taken", cut)
		}
	}
	h, err := Merge([]*Log{must(Read(strings.NewReader(header+event+event[:9]), "f"))})
	if err != nil || !strings.Contains(h.CutOff(), "rank 0 did not record its end") {
		t.Errorf("%v, cut off: %q", err, h.CutOff())
	}
}

func must(l *Log, err error) *Log {
	if err != nil {
		panic(err)
	}
	return l
}

func TestReadBoundsLines(t *testing.T) {
	long := header + `{"kind":"skip","rank":0,"text":"` + strings.Repeat("x", 5000) + `"}` + "\n"
	if _, err := read(strings.NewReader(long), "f", 4096, unbounded()); err == nil || !strings.Contains(err.Error(), "f: ") {
		t.Errorf("a line beyond the bound: %v", err)
	}
	if _, err := read(strings.NewReader(long), "f", 8192, unbounded()); err != nil {
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
	l.Record(samples()[0])
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

func listed(t *testing.T, dir string) []string {
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
	if got := listed(t, dir); !cmp.Equal(got, []string{"a"}) {
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
	if got := listed(t, dir); !cmp.Equal(got, []string{"taken"}) {
		t.Errorf("after an error the directory holds %v", got)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "a"), write); err == nil {
		t.Error("a file was written to a missing directory")
	}
}

// Whatever the bytes, Read does not panic, and what it accepts is written so
// that it comes back the same.
func FuzzRead(f *testing.F) {
	for _, e := range samples() { // each alone: small inputs are soon minimised
		l := &Log{Header: fullHeader()}
		l.Record(e)
		var text bytes.Buffer
		if err := l.Write(&text); err != nil {
			f.Fatal(err)
		}
		f.Add(text.Bytes())
		f.Add(text.Bytes()[:text.Len()-9])
	}
	f.Add([]byte(header + `{"kind":"scalar","rank":0,"value":"NaN"}` + "\n"))
	f.Add([]byte(header + "\n" + `{"KIND":"digest","digest":"00000000000000000000000000000000!7x","ranks":null}`))
	f.Add([]byte(header + `{"value":-0,"data":"AAAAgA==","span":{}}`))
	f.Add([]byte("\n" + header))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := read(bytes.NewReader(b), "f", 1<<16, unbounded())
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

// BenchmarkRead reads a history of samples; BenchmarkAdmits is the part of that
// which holds every event against its form.
func BenchmarkRead(b *testing.B) {
	text := many()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Read(bytes.NewReader(text), "f"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmits(b *testing.B) {
	text := many()
	l, err := Read(bytes.NewReader(text), "f")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for i := range l.events {
			if err := l.Header.Admits(&l.events[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// many is a file of 10,000 events and more.
func many() []byte {
	l := &Log{Header: fullHeader()}
	for len(l.events) < 10000 {
		for _, e := range samples() {
			l.Record(e)
		}
	}
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}
