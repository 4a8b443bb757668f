//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// locked opens a file and locks it. The system lets go of the lock when the
// process ends, by whatever signal, so a file that was left behind holds nothing.
func locked(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// unlock removes the file first: whoever opened it before finds that it is gone.
func unlock(f *os.File) error { return errors.Join(os.Remove(f.Name()), f.Close()) }
