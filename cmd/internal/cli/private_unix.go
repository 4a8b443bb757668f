//go:build unix

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private refuses a file that others than this process's user can read or have written.
func private(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is no file, and must be one")
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Getuid() {
		return fmt.Errorf("is of user %d, and this process of user %d: must be its own", of.Uid, os.Getuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("has mode %#o, so that others can read it: chmod 600", mode)
	}
	return nil
}
