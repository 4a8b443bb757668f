// Package files is how every file is opened that a user names and that this
// program did not just write, and how a directory is held that a run writes to.
//
// What is read is a regular file of a bounded size: a pipe or a device may never
// end, a file of the kernel has no size, and a file that is larger than anything
// its kind can be would fill the memory.
package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens a regular file that has content and at most limit bytes, to be read.
// Symbolic links are followed. Errors name the path and the rule.
func Open(path string, limit int64) (*os.File, error) {
	// Before it is opened: a device may do something then.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	// And after that: it may be another one by now.
	if info, err = f.Stat(); err == nil {
		err = check(info, limit)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Append opens a file to be written at its end, and makes it where there is none;
// size is what a regular file holds already. A pipe that nobody reads is refused: to
// open it would wait for a reader.
func Append(path string) (f *os.File, size int64, err error) {
	f, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|nonBlocking, 0o644)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, nil
}

// Regular says what a file is that is not regular: nil, or an error like "is a
// named pipe: must be a regular file".
func Regular(info fs.FileInfo) error {
	mode := info.Mode()
	if mode.IsRegular() {
		return nil
	}
	what := fmt.Sprintf("has mode %s", mode)
	for _, k := range []struct {
		bit  fs.FileMode
		name string
	}{{fs.ModeDir, "directory"}, {fs.ModeNamedPipe, "named pipe"}, {fs.ModeSocket, "socket"}, {fs.ModeDevice, "device"}, {fs.ModeSymlink, "symbolic link"}} {
		if mode&k.bit != 0 {
			what = "is a " + k.name
			break
		}
	}
	return fmt.Errorf("%s: must be a regular file", what)
}

func check(info fs.FileInfo, limit int64) error {
	switch err := Regular(info); {
	case err != nil:
		return err
	case info.Size() == 0:
		return fmt.Errorf("is empty or has no size: must be a regular file with content")
	case info.Size() > limit:
		return fmt.Errorf("has %d bytes: must have at most %d", info.Size(), limit)
	}
	return nil
}

// Read reads all of a file that Open takes. One whose size changes meanwhile is
// refused: nobody knows then what was read.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size()+1) // one more, to see the end
	n, err := io.ReadFull(f, b)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s: grew beyond its %d bytes while it was read", path, info.Size())
	case err != io.ErrUnexpectedEOF && err != io.EOF:
		return nil, err
	case int64(n) < info.Size():
		return nil, fmt.Errorf("%s: ended after %d of its %d bytes", path, n, info.Size())
	}
	return b[:n], nil
}

// Await gives what f gives, or the cause of ctx as soon as that ends: a file of a
// network may take any time, and so may a large one. f goes on until it ends; what
// it gives then is lost.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
