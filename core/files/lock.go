package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LockName is the file that a directory has while a run writes to it.
const LockName = ".lock"

// ErrInUse is of a directory that another run holds.
var ErrInUse = errors.New("another run writes to it")

// Lock holds a directory that a run writes to.
type Lock struct {
	f *os.File
}

// Hold makes a directory and holds it until Release or the end of the process,
// however that comes. It fails where another run holds the directory, with
// ErrInUse, or where nothing can be written there.
func Hold(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, LockName)
	for {
		f, err := locked(path)
		if errors.Is(err, ErrInUse) {
			return nil, fmt.Errorf("directory %s: %w%s", dir, err, holder(path))
		}
		if err != nil {
			return nil, err
		}
		if !still(f, path) { // its last holder has just released it
			f.Close()
			continue
		}
		l := &Lock{f}
		if err := l.sign(); err != nil {
			return nil, errors.Join(err, l.Release())
		}
		return l, nil
	}
}

// sign writes who holds it, and so shows that the directory can be written to.
func (l *Lock) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(l.f, "%d\n", os.Getpid()); err != nil {
		return err
	}
	return l.f.Sync()
}

// holder says which process signed a lock, where that can be read.
func holder(path string) string {
	f, err := Open(path, 32)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	return fmt.Sprintf(" (process %.20q)", strings.TrimSpace(string(b)))
}

// still reports whether path leads to the open file.
func still(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Release lets others have the directory.
func (l *Lock) Release() error {
	err := unlock(l.f)
	if errors.Is(err, fs.ErrNotExist) { // someone removed the directory
		return nil
	}
	return err
}
