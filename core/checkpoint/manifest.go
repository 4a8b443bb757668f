package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Schema names the format of the manifest.
const Schema = "lockstep/checkpoint/v1"

// ManifestName is the file whose presence makes a checkpoint complete.
const ManifestName = "checkpoint.json"

// File is one file of a checkpoint.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Manifest says what a checkpoint holds and where the run stands.
type Manifest struct {
	Schema     string          `json:"schema"`
	Arithmetic int             `json:"arithmetic"`
	Step       int             `json:"step"`    // steps of data consumed: the next step
	Counter    int             `json:"counter"` // optimizer steps taken
	Spec       json.RawMessage `json:"spec"`    // the run's configuration
	// Digests holds, per kind, the digest of all logical elements.
	Digests map[string]kernels.Digest `json:"digests"`
	Files   []File                    `json:"files"`
	// Simulated says that a simulated device has computed some of it.
	Simulated bool `json:"simulated,omitempty"`
}

// DirName is the directory of the checkpoint after a number of steps.
func DirName(step int) string { return fmt.Sprintf("step-%08d", step) }

// dirStep reads what DirName wrote.
func dirStep(name string) (step int, ok bool) {
	n, err := fmt.Sscanf(name, "step-%d", &step)
	return step, err == nil && n == 1 && name == DirName(step)
}

// Pending is where a checkpoint is written before it is complete.
func Pending(root string, step int) string { return filepath.Join(root, tmp+DirName(step)) }

// FileName is the name of a rank's file.
func FileName(rank int) string { return fmt.Sprintf("rank-%05d.safetensors", rank) }

// maxManifest bounds the bytes of a manifest that is read.
const maxManifest = 64 << 20

// Save writes one rank's file into a pending checkpoint.
func Save(dir string, rank int, rects []Rect, metadata map[string]string, element func(i int) ([]float32, error)) (File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return File{}, err
	}
	f := File{Name: FileName(rank)}
	h, n := sha256.New(), int64(0)
	err := trace.WriteFile(filepath.Join(dir, f.Name), func(w io.Writer) error {
		return Write(io.MultiWriter(w, h, (*counter)(&n)), rects, metadata, element)
	})
	f.Bytes, f.SHA256 = n, hex.EncodeToString(h.Sum(nil))
	return f, err
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// Complete writes the manifest of a pending checkpoint and moves it to its
// place below root. A checkpoint of the same step is replaced.
func Complete(root string, m Manifest) error {
	pending := Pending(root, m.Step)
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	err := trace.WriteFile(filepath.Join(pending, ManifestName), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(m)
	})
	if err != nil {
		return err
	}
	final, old := filepath.Join(root, DirName(m.Step)), Pending(root, m.Step)+".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(pending, final); err != nil {
		return err
	}
	if err := syncDir(root); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Metadata is what every file repeats of the manifest, so that neither can be
// changed alone.
func Metadata(step, counter int) map[string]string {
	return map[string]string{"schema": Schema, "step": strconv.Itoa(step), "counter": strconv.Itoa(counter)}
}

// Clear removes what an earlier, unfinished checkpoint of the step left behind.
func Clear(root string, step int) error { return os.RemoveAll(Pending(root, step)) }

// Checkpoint is an open, checked checkpoint; it may be read by several ranks at
// once.
type Checkpoint struct {
	Manifest Manifest
	Dir      string
	files    []*file
}

// Open opens the checkpoint in dir, or the latest complete one below it, and
// checks every file against the manifest.
func Open(dir string) (*Checkpoint, error) {
	dir, err := latest(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ManifestName)
	b, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Dir: dir}
	if err := read(b, &c.Manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := &c.Manifest
	switch step, ok := dirStep(filepath.Base(dir)); {
	case ok && step != m.Step:
		return nil, fmt.Errorf("%s: step %d: the directory is named after another step", path, m.Step)
	case m.Schema != Schema:
		return nil, fmt.Errorf("%s: schema %q: want %q", path, m.Schema, Schema)
	case m.Arithmetic != kernels.Arithmetic:
		return nil, fmt.Errorf("%s: arithmetic version %d: this program has version %d", path, m.Arithmetic, kernels.Arithmetic)
	case m.Step < 0 || m.Counter < 0 || m.Counter > m.Step:
		return nil, fmt.Errorf("%s: step %d, counter %d: must not be negative, the counter at most the step", path, m.Step, m.Counter)
	}
	for i, f := range m.Files {
		err := c.add(f)
		if slices.ContainsFunc(m.Files[:i], func(g File) bool { return g.Name == f.Name }) {
			err = fmt.Errorf("%s: %s is listed twice", path, f.Name)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.disjoint(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// readManifest reads a manifest, which no reader of a checkpoint's files has
// checked before.
func readManifest(path string) ([]byte, error) {
	if err := own(path); err != nil {
		return nil, err
	}
	return files.Read(path, maxManifest)
}

// own refuses a file of a checkpoint that is a link: it leads out of the checkpoint.
func own(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := files.Regular(info); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// openOwn opens a file of a checkpoint that has at most limit bytes.
func openOwn(path string, limit int64) (*os.File, error) {
	if err := own(path); err != nil {
		return nil, err
	}
	return files.Open(path, limit)
}

// latest is dir if it holds a manifest, else the newest checkpoint below it.
func latest(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, ManifestName)); err == nil {
		return dir, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	name, newest := "", -1
	for _, e := range entries {
		step, ok := dirStep(e.Name())
		if !ok || step <= newest {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, e.Name(), ManifestName)); err == nil {
			name, newest = e.Name(), step
		}
	}
	if name == "" {
		return "", fmt.Errorf("%s: no complete checkpoint (%s) in it", dir, ManifestName)
	}
	return filepath.Join(dir, name), nil
}

// add opens a file once it is known to be the one that the manifest lists.
func (c *Checkpoint) add(f File) error {
	if filepath.Base(f.Name) != f.Name {
		return fmt.Errorf("%s: file name %q: must not leave the checkpoint", c.Dir, f.Name)
	}
	path := filepath.Join(c.Dir, f.Name)
	r, err := openOwn(path, f.Bytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s lists %s, which is not here: ranks of several hosts must store in a directory that all of them share: %w",
			filepath.Join(c.Dir, ManifestName), f.Name, err)
	}
	if err != nil {
		return err
	}
	of, err := c.check(f, r)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), r.Close())
	}
	c.files = append(c.files, of)
	return nil
}

// check compares an open file with the manifest and reads its header.
func (c *Checkpoint) check(f File, r *os.File) (*file, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return nil, err
	}
	if n != f.Bytes {
		return nil, fmt.Errorf("%d bytes: the manifest says %d (truncated?)", n, f.Bytes)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return nil, fmt.Errorf("SHA-256 %s: the manifest says %s (damaged or of another checkpoint)", got, f.SHA256)
	}
	of, err := readHeader(r, n)
	if err != nil {
		return nil, err
	}
	of.f = r
	want := Metadata(c.Manifest.Step, c.Manifest.Counter)
	for key, w := range want {
		if got := of.metadata[key]; got != w {
			return nil, fmt.Errorf("says %s %q, the manifest %q", key, got, w)
		}
	}
	if len(of.metadata) != len(want) {
		return nil, fmt.Errorf("metadata %v: the manifest says %v", of.metadata, want)
	}
	return of, nil
}

// Read fills dst with a rectangle of a logical tensor, row by row. Every
// element must be stored; none is stored twice, or Open had refused it.
func (c *Checkpoint) Read(want Rect, dst []float32) error {
	got := 0
	for _, f := range c.files {
		for _, r := range f.rects {
			if r.What != want.What || r.Tensor != want.Tensor {
				continue
			}
			n, err := copyOverlap(f.f, r, want, dst)
			if err != nil {
				return fmt.Errorf("%s: %w", f.f.Name(), err)
			}
			got += n
		}
	}
	if got != want.Len() {
		return fmt.Errorf("%s: %v: has %d of %d elements", c.Dir, want, got, want.Len())
	}
	return nil
}

// Close closes the files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.f.Close())
	}
	return errors.Join(errs...)
}
