//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// locked makes a file that is not there. Here a run that was killed leaves it
// behind, and someone has to remove it.
func locked(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w, or one that was killed left %s, which may then be removed", ErrInUse, path)
	}
	return f, err
}

// unlock closes the file first: not every system removes an open one.
func unlock(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }
