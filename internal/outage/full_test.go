//go:build linux && root

package outage

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A file system that runs full under what a run writes ends it with 4 (at its last step
// where only the log has no room), and the error names the file; nothing that says it is
// complete is not.
func TestFullDisk(t *testing.T) {
	for _, x := range []struct{ name, command, line, full, size, says string }{
		{"history", "train", "--plan dp=4,zero=1 --launch procs --agents 3 --steps 100000 --history DIR/history --deadline 30s", "history", "600k", ".ndjson: no space left on device"},
		{"checkpoint", "train", "--plan dp=4,zero=1 --launch procs --agents 3 --steps 100000 --save DIR/save --save-every 1 --deadline 30s", "save", "600k", "/save/.tmp-step-"},
		{"log", "train", "--plan dp=2 --launch procs --steps 300 --log DIR/log/steps.ndjson --deadline 30s", "log", "16k", "steps.ndjson: no space left on device"},
		{"report", "verify", "--contract C-DDP-001 --launch procs --agents 3 --out DIR/out --format text,json,junit --deadline 30s", "out", "600k", ": no space left on device"},
		{"temporary files", "verify", "--contract C-CKPT-001 --launch procs --agents 3 --deadline 30s", "tmp", "600k", ": no space left on device"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newStage(t)
			s.mount(x.full, "size="+x.size)
			c := s.start(x.command, x.line)
			if !c.wait(time.Now().Add(2 * time.Minute)) {
				t.Fatalf("it goes on: %s", c.stderr.String())
			}
			if code := c.ProcessState.ExitCode(); code != 4 || !strings.Contains(c.said(), x.says) || !strings.Contains(c.said(), s.path(x.full)) {
				t.Errorf("ended with %d, want %q in %s below %s", code, x.says, c.stderr.String(), s.path(x.full))
			}
			s.empty(time.Now().Add(5 * time.Second))
			s.whole(t)
		})
	}
}

// mount makes a directory of the stage a file system of its own, in memory.
func (s *stage) mount(name, options string) {
	s.t.Helper()
	dir := s.path(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		s.t.Fatalf("mount %s: %v: needs root", dir, err)
	}
	s.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
}
