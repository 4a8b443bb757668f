package independent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"time"
)

// head is the name of the beginning of a text: "FILE[:5000]".
var head = regexp.MustCompile(`^(?s)(.+)\[:([1-9][0-9]*)\]$`)

// Head takes the name of the beginning of a text apart: the name of the whole, and
// how many bytes of it there are.
func Head(name string) (whole string, n int, ok bool) {
	m := head.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(m[2])
	return m[1], n, err == nil
}

// ReadText reads the file of a text again: all of its bytes as they are, or as
// many as the name of a beginning says. It refuses a file that was changed after
// the given time, for then nobody knows what was read before, and a name that is a
// file's and the beginning of another's. Where there is no such file the error is
// fs.ErrNotExist.
func ReadText(name string, since time.Time) ([]byte, error) {
	whole, n, isHead := Head(name)
	text, err := readAll(name, -1, since)
	if !isHead {
		return text, err
	}
	if _, other := os.Stat(whole); other != nil || !errors.Is(err, fs.ErrNotExist) {
		if other == nil {
			return nil, fmt.Errorf("text %q: is a file, and the beginning of another", name)
		}
		return text, err
	}
	if text, err = readAll(whole, int64(n), since); err == nil && len(text) < n {
		err = fmt.Errorf("text %q: the file has %d bytes", name, len(text))
	}
	return text, err
}

// readAll reads a regular file, or its first n bytes where n is not negative.
func readAll(name string, n int64, since time.Time) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // a pipe may never end
		return nil, fmt.Errorf("text %q: has mode %s: must be a regular file", name, info.Mode())
	case info.ModTime().After(since):
		return nil, fmt.Errorf("text %q: was changed at %s, after it was first read", name, info.ModTime().Format(time.RFC3339Nano))
	case n < 0:
		return os.ReadFile(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}
