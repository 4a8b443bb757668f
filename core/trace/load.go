package trace

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
)

// Load reads all histories below the directories: the files of one directory are
// one run. Symbolic links are followed; what several lead to is read once, so that
// no run is its own repetition. A link that leads nowhere and a history that is no
// regular file are refused by name: a run behind them would be left out without a
// word. The result is sorted by directory. What does not fit half of the memory that
// the process may use, as debug.SetMemoryLimit says, is refused with ErrMemory.
func Load(dirs ...string) ([]*History, error) {
	l := loader{logs: map[string][]*Log{}, seen: map[string]bool{}, room: math.MaxInt64}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		l.room = limit / 2 // judging needs as much again
	}
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

// maxFound bounds what is looked at below the directories: a link may lead anywhere.
const maxFound = 1 << 18

// loader collects the logs below directories.
type loader struct {
	logs  map[string][]*Log // by directory
	seen  map[string]bool   // directories and files as they lie, without links
	files int               // that were read
	found int               // files and directories of any kind
	room  int64             // bytes of memory left for them
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
	if l.found++; l.found > maxFound {
		return fmt.Errorf("%s: more than %d files and directories were found up to it, of which %d are histories: name a smaller directory", path, maxFound, l.files)
	}
	switch {
	case info.IsDir():
		l.seen[real] = true
		return l.below(path)
	case !strings.HasSuffix(path, Extension):
		return nil
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
	f, err := files.Open(path, math.MaxInt64) // its lines are bounded, and all of them by the memory
	if err != nil {
		return err
	}
	defer f.Close()
	log, err := read(f, path, maxLine, &l.room)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	l.logs[dir], l.files = append(l.logs[dir], log), l.files+1
	return nil
}
