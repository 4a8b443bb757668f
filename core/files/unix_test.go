//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAPipeIsRefused: opening it must not wait for a writer, even where it became
// one after it was looked at.
func TestAPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() {
		_, err := Read(path, 100)
		done <- err
		f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
		done <- errors.Join(err, f.Close())
	}()
	for _, want := range []string{path + ": is a named pipe: must be a regular file", ""} {
		select {
		case err := <-done:
			if (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%v, want %q", err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("opening a pipe waits for a writer")
		}
	}
}

const holds = "FILES_TEST_HOLDS"

// TestMain lets the test binary be another process that holds a directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv(holds); dir != "" {
		if _, err := Hold(dir); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("held\n")
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

// TestAKilledProcessHoldsNothing, though it left its file behind.
func TestAKilledProcessHoldsNothing(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holds+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := Hold(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("while the process lives: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	l, err := Hold(dir)
	if err != nil {
		t.Fatalf("after its death: %v", err)
	}
	l.Release()
}
