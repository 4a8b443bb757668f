//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
)

func TestAPipeAmongHistoriesIsNamed(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	path := filepath.Join(dir, "0009"+trace.Extension)
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call(t.Context(), "--history", dir)
	if code != cli.Usage || stdout != "" || !strings.Contains(stderr, path+": is a named pipe: must be a regular file") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestNamesAreEscaped: a terminal obeys what it is sent, and a file could send it
// anything.
func TestNamesAreEscaped(t *testing.T) {
	for name, shown := range map[string]bool{`"model.norm.weight"`: false, `"nano"`: true} {
		dir := t.TempDir()
		record(t, dir, "dp=2", data.Default())
		for _, path := range []string{"0000" + trace.Extension, "0001" + trace.Extension} {
			path = filepath.Join(dir, path)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = bytes.ReplaceAll(b, []byte(name), []byte(name[:2]+`\u001b[31m\u0000\n`+name[2:]))
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, format := range []string{"text", "json", "junit"} {
			_, stdout, stderr := call(t.Context(), "--history", dir, "--contract", "C-DDP-001", "--format", format)
			if strings.ContainsAny(stdout+stderr, "\x1b\x00") {
				t.Errorf("%s in %s: %q%q", name, format, stdout, stderr)
			}
			if format == "text" && shown && !strings.Contains(stdout+stderr, `\x1b[31m`) {
				t.Errorf("%s does not show:\n%s%s", name, stdout, stderr)
			}
		}
	}
}

func TestOneVerificationWritesToADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	held, err := files.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=2", "--steps", "1", "--out", dir}
	code, stdout, stderr := call(t.Context(), args...)
	if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, dir) || !strings.Contains(stderr, "another run writes to it") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	held.Release()
	if code, _, stderr := call(t.Context(), args...); code != cli.OK {
		t.Errorf("when it has ended: exit %d, stderr %q", code, stderr)
	}
}

func TestReportsAreProbedFirst(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkdir(filepath.Join(dir, "report.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	for out, says := range map[string]string{dir: "report.txt: is a directory", filepath.Join(file(t, "plain", "x"), "below"): "plain"} {
		code, stdout, stderr := call(t.Context(), "--contract", "C-KERN-001", "--out", out)
		if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", out, code, stdout, stderr, says)
		}
	}
}

// TestReportsReplaceNoInput: of an earlier run they may, of this one's input not.
func TestReportsReplaceNoInput(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "report.json"), filepath.Join(t.TempDir(), "mine.json")
	text := filepath.Join(dir, "report.xml")
	for name, content := range map[string]string{path: own, text: strings.Repeat("a text\n\n", 99)} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, input, replaced string }{{"--config", path, path}, {"--config", link, path}, {"--data", text, text}} {
		code, stdout, stderr := call(t.Context(), c.flag, c.input, "--contract", "C-DDP-001", "--steps", "1", "--out", dir, "--format", "json,junit")
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, "out: "+c.replaced+": a report would replace what is read from it") {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", c.input, code, stdout, stderr)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != own {
		t.Errorf("the input is now %q, %v", b, err)
	}
}
