package independent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Checkpoint is what a directory of safetensors files with its manifest says.
type Checkpoint struct {
	Schema     string
	Arithmetic int
	Step       int // steps of data consumed
	Counter    int // optimizer steps taken
	Spec       json.RawMessage
	// Digests are the manifest's own, as text, by kind.
	Digests map[string]string
	// Tensors are the elements, by kind and parameter, row by row.
	Tensors map[string]map[string][]float32
}

// manifestLimit bounds the bytes of a manifest.
const manifestLimit = 16 << 20

// OpenCheckpoint reads the manifest and every file of a checkpoint's directory
// and puts each named tensor of params together, for "weight" and for each of
// the moments. It refuses, by name, files that are not the manifest's or not in
// its directory, sizes and hashes that differ, files of another step, tensors
// that are unknown, elements that are missing or stored twice, and JSON that says
// a thing twice. Whether the elements have the manifest's digests is for the caller
// to compare.
func OpenCheckpoint(dir string, params []Param, moments []string) (*Checkpoint, error) {
	m, err := readManifest(filepath.Join(dir, "checkpoint.json"))
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: checkpoint.json: %w", dir, err)
	}
	if n, ok := stepOf(filepath.Base(dir)); ok && n != m.Step {
		return nil, fmt.Errorf("checkpoint %s: checkpoint.json: is of step %d", dir, m.Step)
	}
	c := &Checkpoint{m.Schema, m.Arithmetic, m.Step, m.Counter, m.Spec, m.Digests, map[string]map[string][]float32{}}
	a := newAssembly(params, append([]string{"weight"}, moments...))
	want := map[string]string{"schema": m.Schema, "step": strconv.Itoa(m.Step), "counter": strconv.Itoa(m.Counter)}
	names := map[string]bool{}
	for _, f := range m.Files {
		if names[f.Name] {
			return nil, fmt.Errorf("checkpoint %s: file %q is listed twice", dir, f.Name)
		}
		names[f.Name] = true
		if err := a.file(dir, f, want); err != nil {
			return nil, fmt.Errorf("checkpoint %s: file %q: %w", dir, f.Name, err)
		}
	}
	if c.Tensors, err = a.whole(); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return c, nil
}

// stepOf is the step that a directory is named after.
func stepOf(name string) (step int, ok bool) {
	digits, ok := strings.CutPrefix(name, "step-")
	step, err := strconv.Atoi(digits)
	return step, ok && err == nil && len(digits) >= 8
}

// Digest is that of all tensors of a kind.
func (c *Checkpoint) Digest(kind string) Digest {
	var d Digest
	for name, x := range c.Tensors[kind] {
		d.Add(name, 0, x)
	}
	return d
}

// manifest is checkpoint.json as it is written.
type manifest struct {
	Schema     string            `json:"schema"`
	Arithmetic int               `json:"arithmetic"`
	Step       int               `json:"step"`
	Counter    int               `json:"counter"`
	Spec       json.RawMessage   `json:"spec"`
	Digests    map[string]string `json:"digests"`
	Files      []manifestFile    `json:"files"`
	Simulated  bool              `json:"simulated"`
}

type manifestFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// UnmarshalJSON implements json.Unmarshaler: all fields, spelled so, and no other.
func (f *manifestFile) UnmarshalJSON(b []byte) error {
	type plain manifestFile
	return fields(b, (*plain)(f), "name", "bytes", "sha256")
}

// readManifest reads a manifest that says each thing once.
func readManifest(path string) (m manifest, err error) {
	f, size, err := openRegular(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	if size > manifestLimit {
		return m, fmt.Errorf("%d bytes: must be at most %d", size, manifestLimit)
	}
	raw, err := io.ReadAll(io.LimitReader(f, manifestLimit))
	if err != nil {
		return m, err
	}
	names := []string{"schema", "arithmetic", "step", "counter", "spec", "digests", "files"}
	list, err := members(raw)
	if err != nil {
		return m, err
	}
	if slices.ContainsFunc(list, func(m member) bool { return m.name == "simulated" }) { // by a device that is
		names = append(names, "simulated")
	}
	if err := fields(raw, &m, names...); err != nil {
		return m, err
	}
	return m, single(bytes.TrimSpace(raw), 0)
}

// openRegular opens a file that is no link, pipe or device.
func openRegular(path string) (f *os.File, size int64, err error) {
	info, err := os.Lstat(path) // a pipe or a device would never end
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("has mode %s: must be a regular file", info.Mode())
	}
	f, err = os.Open(path)
	return f, info.Size(), err
}

// assembly puts tensors together from pieces.
type assembly struct {
	params map[string]Param
	kinds  []string
	parts  map[[2]string]*part
}

// part is one tensor of one kind; have marks the elements that are there.
type part struct {
	data []float32
	have []bool
	n    int
}

func newAssembly(params []Param, kinds []string) *assembly {
	a := &assembly{map[string]Param{}, kinds, map[[2]string]*part{}}
	for _, p := range params {
		a.params[p.Name] = p
	}
	return a
}

// file adds the pieces of a file, once it is known to be the one meant.
func (a *assembly) file(dir string, f manifestFile, metadata map[string]string) error {
	if f.Name == "." || f.Name == ".." || filepath.Base(f.Name) != f.Name {
		return fmt.Errorf("must be a name within the checkpoint")
	}
	in, size, err := openRegular(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer in.Close()
	if size != f.Bytes {
		return fmt.Errorf("%d bytes, the manifest says %d", size, f.Bytes)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(in, 0, f.Bytes)); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("SHA-256 %s, the manifest says %q", got, f.SHA256)
	}
	pieces, meta, err := ReadSafetensors(in, f.Bytes)
	if err != nil {
		return err
	}
	if !maps.Equal(meta, metadata) {
		return fmt.Errorf("says %v, the manifest %v", meta, metadata)
	}
	for _, p := range pieces {
		if err := a.add(p); err != nil {
			return err
		}
	}
	return nil
}

func (a *assembly) add(p Piece) error {
	q, ok := a.params[p.Tensor]
	at := fmt.Sprintf("%s of %s at [%d:%d,%d:%d]", p.Kind, p.Tensor, p.R0, p.R1, p.C0, p.C1)
	switch {
	case !slices.Contains(a.kinds, p.Kind):
		return fmt.Errorf("%s: kinds are %v", at, a.kinds)
	case !ok:
		return fmt.Errorf("%s: no such parameter", at)
	case p.R1 > q.Rows || p.C1 > q.Cols:
		return fmt.Errorf("%s: the parameter is %d x %d", at, q.Rows, q.Cols)
	}
	x := a.parts[[2]string{p.Kind, p.Tensor}]
	if x == nil {
		x = &part{make([]float32, q.Len()), make([]bool, q.Len()), 0}
		a.parts[[2]string{p.Kind, p.Tensor}] = x
	}
	width := p.C1 - p.C0
	for i, v := range p.Data {
		place := (p.R0+i/width)*q.Cols + p.C0 + i%width
		if x.have[place] {
			return fmt.Errorf("%s: element %d is stored twice", at, place)
		}
		x.data[place], x.have[place] = v, true
		x.n++
	}
	return nil
}

// whole gives the tensors, once nothing is missing.
func (a *assembly) whole() (map[string]map[string][]float32, error) {
	out := map[string]map[string][]float32{}
	for _, kind := range a.kinds {
		out[kind] = map[string][]float32{}
		for name, p := range a.params {
			x := a.parts[[2]string{kind, name}]
			if x == nil {
				return nil, fmt.Errorf("%s of %s is missing", kind, name)
			}
			if x.n != p.Len() {
				return nil, fmt.Errorf("%s of %s: %d of %d elements, element %d is missing", kind, name, x.n, p.Len(), slices.Index(x.have, false))
			}
			out[kind][name] = x.data
		}
	}
	return out, nil
}
