package ckpt

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
)

// OtherReader is the What of a refusal by the reader that is not the trainer's.
const OtherReader = "other reader"

// kept is clause 6.
func kept(p *contract.Pass, r *evidence.Run) {
	step := r.Config.Steps - 1
	at := p.At(-1, step)
	for e := range r.Events(0, trace.KindRefusal) {
		if e.What == OtherReader {
			at.Report(e.Text, nil, "the files that were stored cannot be read")
		}
	}
	found := map[[2]string]trace.Event{}
	for e := range r.In(step, 0, trace.KindStored) {
		found[[2]string{e.What, e.Tensor}] = e
	}
	for _, what := range r.State() {
		for _, t := range r.Params {
			got, ok := found[[2]string{what, t.Name}]
			want, has := r.Logical(step, what, t.Name, 0)
			r.Compare(at.Of(t.Name), ok && has && want.Count == t.Len, got, want,
				"%s in the checkpoint's files is not what the run had", what)
			delete(found, [2]string{what, t.Name})
		}
	}
	for k := range found {
		at.Of(k[1]).Report(nil, nil, "the files hold %s of it, which the run does not have", k[0])
	}
}

// manifest is clause 7.
func manifest(p *contract.Pass, r *evidence.Run) {
	step := r.Config.Steps - 1
	at := p.At(-1, step)
	files := map[string]trace.Event{}
	for e := range r.In(step, 0, trace.KindFile) {
		files[e.Unit] = e
	}
	e, ok := files[checkpoint.ManifestName]
	if !p.Found(ok) {
		return
	}
	delete(files, checkpoint.ManifestName)
	var m struct {
		Schema        string
		Arithmetic    int
		Step, Counter int
		Spec          json.RawMessage
		Digests       map[string]string
		Files         []struct {
			Name  string
			Bytes int64
		}
	}
	if err := json.Unmarshal([]byte(e.Text), &m); err != nil {
		at.Report(err, nil, "the manifest cannot be read")
		return
	}
	same := func(ok bool, got, want any, what string) {
		contract.Compare(at, ok, got, want, "%s of the manifest is not the run's", what)
	}
	counter, ok := r.Scalar(0, step, trace.Counter)
	same(true, m.Schema, "lockstep/checkpoint/v1", "the schema")
	same(r.Header.Arithmetic != 0, m.Arithmetic, r.Header.Arithmetic, "the arithmetic")
	same(true, m.Step, r.Config.Steps, "the step")
	same(ok, float64(m.Counter), float64(counter.Value), "the counter")
	configured(p, at, m.Spec, r.Header.Spec.Lockstep)
	same(true, strings.Join(slices.Sorted(maps.Keys(m.Digests)), " "), strings.Join(slices.Sorted(slices.Values(r.State())), " "), "the list of digests")
	for _, what := range r.State() {
		sum, ok := whole(r, step, what)
		same(ok, m.Digests[what], sum, "the digest of "+what)
	}
	same(true, len(m.Files), r.Header.World, "the number of files")
	for _, f := range m.Files {
		e, ok := files[f.Name]
		same(ok, f.Bytes, e.Bytes, "the size of "+f.Name)
		delete(files, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at.Report(nil, nil, "the manifest does not list %s", name)
	}
}

// configured compares the configuration of a manifest with the run's, field by
// field.
func configured(p *contract.Pass, at contract.At, got, want json.RawMessage) {
	a, b := fields(got), fields(want)
	if !p.Found(len(b) > 0) {
		return
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			a[k] = ""
		}
	}
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if a[k] != b[k] {
			at.Report(a[k], b[k], "%s in the configuration of the manifest is not the run's", k)
		}
	}
}

// fields are those of a JSON object, each as canonical JSON: object keys sorted, no
// white space, numbers as they are.
func fields(b json.RawMessage) map[string]string {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var object map[string]any
	out := map[string]string{}
	if dec.Decode(&object) != nil {
		return out
	}
	for k, v := range object {
		text, _ := json.Marshal(v) // it was JSON
		out[k] = string(text)
	}
	return out
}

// whole is the digest of all logical elements of a kind, as text; ok says that all
// were recorded.
func whole(r *evidence.Run, step int, what string) (text string, ok bool) {
	var sum kernels.Digest
	ok = true
	for _, t := range r.Params {
		e, has := r.Logical(step, what, t.Name, 0)
		if ok = ok && has && e.Count == t.Len; has {
			sum.Add(*e.Digest)
		}
	}
	b, _ := sum.MarshalText() // never fails
	return string(b), ok
}

// goldenFiles is clause 8.
func goldenFiles(p *contract.Pass) {
	h, ok := p.History(contract.Test)
	if !ok {
		return
	}
	want, err := golden.CheckpointFiles()
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	if slices.ContainsFunc(h.Backends(), kernels.Simulated) {
		want[checkpoint.ManifestName] = marked(want[checkpoint.ManifestName])
	}
	got, resumed := map[string][]byte{}, false
	at := p.At(-1, golden.CheckpointSteps-1).Against(contract.Golden)
	for e := range h.All {
		switch {
		case e.Kind == trace.KindRefusal && e.What == "":
			resumed = true
			if e.Text != "" {
				at.Report(e.Text, nil, "the golden checkpoint is refused")
			}
		case e.Kind == trace.KindFile && e.Unit == checkpoint.ManifestName:
			got[e.Unit] = []byte(e.Text)
		case e.Kind == trace.KindFile:
			if got[e.Unit], err = base64.StdEncoding.DecodeString(e.Text); err != nil {
				p.Doubt("%s: %v", e.Unit, err)
			}
		}
	}
	p.Found(resumed)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		x, ok := got[name]
		if p.Found(ok) && !bytes.Equal(x, want[name]) {
			i := parts(x, want[name])
			at.Report(around(x, i), around(want[name], i), "%s is not the golden one, from byte %d on (%d bytes, %d there)", name, i, len(x), len(want[name]))
		}
		delete(got, name)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		at.Report(name, nil, "a file that the golden checkpoint does not have")
	}
}

// marked is a manifest as a run of a simulated device stores it.
func marked(manifest []byte) []byte {
	return append(bytes.TrimSuffix(manifest, []byte("\n}\n")), ",\n \"simulated\": true\n}\n"...)
}

// parts is the first byte in which two files differ, or the shorter one ends.
func parts(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// around are some bytes of a file from a place on, as a Go string.
func around(x []byte, i int) string { return strconv.Quote(string(x[i:min(len(x), i+16)])) }
