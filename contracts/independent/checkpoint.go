package independent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
// that are unknown, and elements that are missing or stored twice.
func OpenCheckpoint(dir string, params []Param, moments []string) (*Checkpoint, error) {
	raw, err := readLimited(filepath.Join(dir, "checkpoint.json"), manifestLimit)
	if err != nil {
		return nil, err
	}
	var m struct {
		Schema     string            `json:"schema"`
		Arithmetic int               `json:"arithmetic"`
		Step       int               `json:"step"`
		Counter    int               `json:"counter"`
		Spec       json.RawMessage   `json:"spec"`
		Digests    map[string]string `json:"digests"`
		Files      []manifestFile    `json:"files"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("checkpoint %s: manifest: %w", dir, err)
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

// Digest is that of all tensors of a kind.
func (c *Checkpoint) Digest(kind string) Digest {
	var d Digest
	for name, x := range c.Tensors[kind] {
		d.Add(name, 0, x)
	}
	return d
}

// Check refuses a checkpoint whose tensors of any kind have another digest than
// its manifest says.
func (c *Checkpoint) Check() error {
	for kind := range c.Tensors {
		if got := c.Digest(kind).String(); got != c.Digests[kind] {
			return fmt.Errorf("checkpoint: the elements of %s have the digest %s, the manifest says %q", kind, got, c.Digests[kind])
		}
	}
	return nil
}

type manifestFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return b, err
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
	if f.Name == "" || f.Name == "." || f.Name == ".." || filepath.Base(f.Name) != f.Name {
		return fmt.Errorf("must be a name within the checkpoint")
	}
	info, err := os.Lstat(filepath.Join(dir, f.Name)) // a pipe or a device would never end
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("has mode %s: must be a regular file", info.Mode())
	case info.Size() != f.Bytes:
		return fmt.Errorf("%d bytes, the manifest says %d", info.Size(), f.Bytes)
	}
	in, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer in.Close()
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
	for k, v := range metadata {
		if meta[k] != v {
			return fmt.Errorf("says %s %q, the manifest %q", k, meta[k], v)
		}
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
