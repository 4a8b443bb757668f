package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Claim makes and holds the directories that a command writes to, but for empty
// names, and shows that something can be written there, before work begins. One
// that another run writes to is refused, and one that is named twice, by whatever
// name: each holds what it is for and nothing else. release lets go of them.
func Claim(dirs ...string) (release func(), err error) {
	var held []*files.Lock
	release = func() {
		for _, l := range held {
			_ = l.Release() // what was to be written is; a file that is left holds nothing
		}
	}
	for i, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			release()
			return nil, err
		}
		for _, other := range dirs[:i] {
			if Same(dir, other) {
				release()
				return nil, Usagef("directories %s and %s: are one; name two", other, dir)
			}
		}
		l, err := files.Hold(dir)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, l)
	}
	return release, nil
}

// Same reports whether two paths, which may have links in them, lead to one file or
// directory that exists.
func Same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Below reports whether a file, which need not exist, would lie in a directory or
// anywhere below it.
func Below(file, dir string) bool {
	for at := filepath.Dir(file); ; at = filepath.Dir(at) {
		if Same(at, dir) {
			return true
		}
		if real, err := filepath.EvalSymlinks(at); err == nil {
			if real, err = filepath.Abs(real); err == nil {
				at = real
			}
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// FreshDir refuses a directory that already holds histories, or a link to where some
// may be, as a usage error: files of two runs must not mix.
func FreshDir(dir string) error {
	real, err := filepath.EvalSymlinks(dir) // the walk does not follow a link
	if err != nil {
		return err
	}
	var found, link string
	err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case linked(path, d):
			link = path
		case !d.IsDir() && strings.HasSuffix(path, trace.Extension):
			found = path
		default:
			return nil
		}
		return filepath.SkipAll
	})
	switch {
	case err != nil:
		return err
	case link != "":
		return Usagef("directory %s: holds %s, which leads to another directory, where histories may be; name an empty one", dir, link)
	case found != "":
		return Usagef("directory %s: holds %s of an earlier run; name an empty one", dir, found)
	}
	return nil
}

// linked reports whether a name is a link to a directory: histories are read from
// behind it too.
func linked(path string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Replaceable refuses names in dir that a command writes at its end and that are
// taken by something other than a file of an earlier run.
func Replaceable(dir string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = files.Regular(info)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
