package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads all histories below the directories: the files of one directory are
// one run. Symbolic links are followed; what several lead to is read once, so that
// no run is its own repetition. A link that leads nowhere and a history that is no
// regular file are refused by name: a run behind them would be left out without a
// word. The result is sorted by directory.
func Load(dirs ...string) ([]*History, error) {
	l := loader{logs: map[string][]*Log{}, seen: map[string]bool{}}
	for _, dir := range dirs {
		files, seen := l.files, len(l.seen)
		if err := l.add(dir); err != nil {
			return nil, err
		}
		if l.files == files && (len(l.seen) > seen || files == 0) {
			return nil, fmt.Errorf("%s: no history (*%s) in it", dir, Extension)
		}
	}
	var sorted []string
	for dir := range l.logs {
		sorted = append(sorted, dir)
	}
	slices.Sort(sorted)
	var out []*History
	for _, dir := range sorted {
		h, err := Merge(l.logs[dir])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		h.Dir = dir
		out = append(out, h)
	}
	return out, nil
}

// loader collects the logs below directories.
type loader struct {
	logs  map[string][]*Log // by directory
	seen  map[string]bool   // directories and files as they lie, without links
	files int               // that were read
}

// add reads a file, or what lies below a directory.
func (l *loader) add(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if real, err = filepath.Abs(real); err != nil || l.seen[real] {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		l.seen[real] = true
		return l.below(path)
	case !strings.HasSuffix(path, Extension):
		return nil
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file (%s): a history must be one", path, info.Mode().Type())
	}
	l.seen[real] = true
	return l.read(path)
}

func (l *loader) below(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.add(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	log, err := Read(f, path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	l.logs[dir], l.files = append(l.logs[dir], log), l.files+1
	return nil
}
