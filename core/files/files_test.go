package files

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadTakesRegularFiles(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), "twelve bytes")
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		if b, err := Read(p, 12); string(b) != "twelve bytes" || err != nil {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	if _, err := Read(path, 11); err == nil || !strings.Contains(err.Error(), "has 12 bytes: must have at most 11") || !strings.Contains(err.Error(), path) {
		t.Errorf("one byte too many: %v", err)
	}
}

// TestOthersAreRefused: at once, by name, whatever they would do when they are
// read.
func TestOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	zero := filepath.Join(dir, "zero")
	if err := os.Symlink(os.DevNull, zero); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		dir:                                   "is a directory",
		socket:                                "is a socket",
		zero:                                  "is a device",
		write(t, filepath.Join(dir, "e"), ""): "regular file with content",
		filepath.Join(dir, "missing"):         "no such file",
	}
	if _, err := os.Stat("/proc/cpuinfo"); err == nil {
		cases["/proc/cpuinfo"] = "regular file with content"
	}
	for path, want := range cases {
		done := make(chan error, 1)
		go func() {
			_, err := Read(path, 1<<20)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: reading it does not end", path)
		}
	}
}

// TestAwaitEndsWithItsContext: whatever the file does.
func TestAwaitEndsWithItsContext(t *testing.T) {
	if v, err := Await(t.Context(), func() (int, error) { return 3, os.ErrExist }); v != 3 || err != os.ErrExist {
		t.Errorf("%v, %v", v, err)
	}
	stop := make(chan struct{})
	defer close(stop)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	_, err := Await(ctx, func() (int, error) {
		<-stop
		return 0, nil
	})
	if err != cause {
		t.Errorf("%v", err)
	}
}

func TestOneHoldsADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second holder: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again, err := Hold(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Errorf("a directory that is gone: %v", err)
	}
}

func TestWhatCannotBeWrittenIsNotHeld(t *testing.T) {
	plain := write(t, filepath.Join(t.TempDir(), "plain"), "x")
	for _, dir := range []string{plain, filepath.Join(plain, "below")} {
		if _, err := Hold(dir); err == nil || !strings.Contains(err.Error(), plain) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
