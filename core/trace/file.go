package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Extension ends the name of a rank's history file.
const Extension = ".ndjson"

// maxLine bounds one line of a history file that is read: 256 MiB.
const maxLine = 1 << 28

// Write writes the log as NDJSON: the header, then one event a line.
func (l *Log) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(l.Header); err != nil {
		return err
	}
	for _, e := range l.Events() {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// Save writes the log to <dir>/<rank>.ndjson, complete or not at all.
func (l *Log) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, fmt.Sprintf("%04d%s", l.Header.Rank, Extension)), l.Write)
}

// WriteFile makes a file by a temporary file, fsync and rename, so that no
// reader ever sees half of it.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	buf := bufio.NewWriter(f)
	if err = write(buf); err != nil {
		return err
	}
	if err = buf.Flush(); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read reads what Write wrote; name is used in errors, which give the line.
func Read(r io.Reader, name string) (*Log, error) { return read(r, name, maxLine) }

// read is Read with a bound on the bytes of a line.
func read(r io.Reader, name string, maxLine int) (*Log, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	l := &Log{}
	for n := 1; s.Scan(); n++ {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		if n == 1 {
			if err := json.Unmarshal(line, &l.Header); err != nil {
				return nil, fmt.Errorf("%s:1: header: %w", name, err)
			}
			if l.Header.Schema != Schema {
				return nil, fmt.Errorf("%s:1: schema %q: want %q", name, l.Header.Schema, Schema)
			}
			if l.Header.Arithmetic != kernels.Arithmetic {
				return nil, fmt.Errorf("%s:1: canonical arithmetic version %d: this program has version %d, and bits of different versions are never compared",
					name, l.Header.Arithmetic, kernels.Arithmetic)
			}
			if l.Header.World < 1 || l.Header.World > 1<<20 {
				return nil, fmt.Errorf("%s:1: world of %d ranks: want 1 to %d", name, l.Header.World, 1<<20)
			}
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if e.Rank != l.Header.Rank {
			return nil, fmt.Errorf("%s:%d: event of rank %d in the history of rank %d", name, n, e.Rank, l.Header.Rank)
		}
		l.events = append(l.events, e)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if l.Header.Schema == "" {
		return nil, fmt.Errorf("%s: empty", name)
	}
	return l, nil
}

// Load reads all histories below dir: the files of one directory are one run.
// The result is sorted by directory.
func Load(dir string) ([]*History, error) {
	logs := map[string][]*Log{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, Extension) {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		l, err := Read(f, path)
		if err != nil {
			return err
		}
		logs[filepath.Dir(path)] = append(logs[filepath.Dir(path)], l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("%s: no history (*%s) in it", dir, Extension)
	}
	var dirs []string
	for d := range logs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	var out []*History
	for _, d := range dirs {
		h, err := Merge(logs[d])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		out = append(out, h)
	}
	return out, nil
}
