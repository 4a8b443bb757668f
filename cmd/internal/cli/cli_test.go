package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
)

func execute(result error, code int, args ...string) (exit int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return result }}
	cmd.Flags().Int("number", 0, "a number")
	exit = Execute(context.Background(), cmd, args, &out, &errs, &code)
	return exit, out.String(), errs.String()
}

func TestExecuteMapsErrorsToExitCodes(t *testing.T) {
	for _, c := range []struct {
		result error
		code   int
		args   []string
		exit   int
		stderr string
	}{
		{nil, OK, nil, OK, ""},
		{nil, Violated, nil, Violated, ""},
		{nil, Inconclusive, []string{"--number", "3"}, Inconclusive, ""},
		{errors.New("no device"), Violated, nil, CannotRun, "tool: no device\n"},
		{Usagef("level=%d: must be 1", 7), OK, nil, Usage, "tool: level=7: must be 1\ntool --help"},
		{nil, OK, []string{"--number", "x"}, Usage, `tool: number "x": invalid syntax`},
		{nil, OK, []string{"--letter"}, Usage, "tool: unknown flag: --letter"},
		{nil, OK, []string{"word"}, Usage, `tool: "word": unexpected argument`},
	} {
		exit, stdout, stderr := execute(c.result, c.code, c.args...)
		if exit != c.exit || !strings.HasPrefix(stderr, c.stderr) || stdout != "" || c.stderr == "" && stderr != "" {
			t.Errorf("%v, %q: exit %d, stdout %q, stderr %q", c.result, c.args, exit, stdout, stderr)
		}
	}
}

// Go's own exit code after a panic is that of usage.
func TestPanicCannotRun(t *testing.T) {
	var out, errs bytes.Buffer
	var code int
	cmd := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return []error{}[len(os.Args)] }}
	if exit := Execute(context.Background(), cmd, nil, &out, &errs, &code); exit != CannotRun || !strings.HasPrefix(errs.String(), "tool: panic: runtime error: index out of range") {
		t.Errorf("exit %d, stderr %q", exit, errs.String())
	}
}

func TestWhyPrefersWhatEndedTheContext(t *testing.T) {
	err := errors.New("rank 1 is gone")
	if got := Why(t.Context(), err); got != err {
		t.Errorf("a live context: %v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ctrl-c"))
	if got := Why(ctx, err); !strings.Contains(got.Error(), "interrupted: ctrl-c") {
		t.Errorf("cancelled: %v", got)
	}
	late, stop := context.WithTimeoutCause(t.Context(), 0, errors.New("time is up"))
	defer stop()
	<-late.Done()
	if got := Why(late, nil); !strings.Contains(got.Error(), "timed out: time is up") {
		t.Errorf("late: %v", got)
	}
}

func TestBackendsOpenByName(t *testing.T) {
	for _, name := range Backends() {
		if name == CUDA {
			continue // TestDevices has it
		}
		open, err := OpenBackend(name, Devices{})
		if err != nil {
			t.Fatal(err)
		}
		a, err := open(0)
		if err != nil {
			t.Fatal(err)
		}
		if own, _, _ := strings.Cut(a.Name(), "-"); own != name { // cpu-avx512
			t.Errorf("backend %q calls itself %q", name, a.Name())
		}
		if b, err := open(1); err != nil || b.Name() != a.Name() {
			t.Errorf("backend %q: rank 1 gets %v, %v", name, b, err)
		}
	}
	var usage *UsageError
	for _, isa := range []string{"ref", "mmx"} {
		t.Setenv(ISAVariable, isa)
		open, err := OpenBackend("cpu", Devices{})
		if isa == "mmx" {
			if !errors.As(err, &usage) {
				t.Errorf("%s=%s: %v", ISAVariable, isa, err)
			}
			continue
		}
		if b, err := open(0); err != nil || b.Name() != "cpu-ref" {
			t.Errorf("%s=%s: %v, %v", ISAVariable, isa, b, err)
		}
	}
	if _, err := OpenBackend("abacus", Devices{}); !errors.As(err, &usage) {
		t.Errorf("an unknown backend: %v", err)
	}
}

// The machine that runs this has memory, and the collector keeps below it.
func TestMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	bytes := Memory()
	if bytes < 1<<28 {
		t.Fatalf("%d bytes", bytes)
	}
	if limit := debug.SetMemoryLimit(-1); limit > bytes {
		t.Errorf("the collector may use %d of %d bytes", limit, bytes)
	}
	has, err := memlimit.FromSystem()
	if err == nil && uint64(bytes) > has/10*9+10 {
		t.Errorf("%d bytes of a machine that has %d", bytes, has)
	}
}

func TestPresetReadsFiles(t *testing.T) {
	write := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sizes := `{"vocab":256,"hidden":8,"layers":1,"heads":2,"kv_heads":1,"head_dim":4,"intermediate":8,"seq_len":8}`
	c, err := Preset(write("mine.json", sizes))
	if err != nil || c.Model.Name != "mine" || c.Model.Hidden != 8 || c.Sequences != 16 {
		t.Errorf("%v, %+v", err, c)
	}
	c, err = Preset(write("tuned.json", sizes[:len(sizes)-1]+`,"optimizer":{"beta2":0.999,"eps":1e-6,"decay":-1}}`))
	if err != nil || c.Optimizer.Beta2 != 0.999 || c.Optimizer.Eps != 1e-6 || c.Optimizer.Decay != -1 || c.Optimizer.Beta1 != 0.9 || c.Model.Hidden != 8 {
		t.Errorf("%v, %+v", err, c.Optimizer)
	}
	for content, want := range map[string]string{
		"":            "regular file with content",
		" ":           "EOF",
		sizes + sizes: "more than one value",
		sizes[:len(sizes)-1] + `,"optimizer":{"beta3":1}}`:   "beta3",
		sizes[:len(sizes)-1] + `,"optimizer":{"beta2":1.5}}`: "beta2=1.5",
		sizes[:len(sizes)-1] + `,"name":"a\u001bb"}`:         `name "a\x1bb"`,
		"{}":                                     "vocab=0",
		sizes[:len(sizes)-1] + `,"name":"Nano"}`: "is that of a named configuration",
		`{"hiden":8}`:                            "hiden",
		sizes[:len(sizes)-1] + `,"hidden":8}`:    `key "hidden": is given twice`,
		sizes[:len(sizes)-1] + `,"Hidden":8}`:    `key "Hidden": is given twice`,
		sizes[:len(sizes)-1] + `,"optimizer":{"lr":1,"beta1":0.5,"lr":1}}`:                  `key "optimizer.lr": is given twice`,
		sizes[:len(sizes)-1] + `,"groups":{"tensor":1,"data":8},"groups":{"tensor":1}}`:     `key "groups": is given twice`,
		sizes[:len(sizes)-1] + `,"groups":{"tensor":1,"data":8,"tensor":1},"optimizer":{}}`: `key "groups.tensor": is given twice`,
		`{"vocab":1e99}`: "number",
		"[8]":            "unmarshal",
	} {
		if _, err := Preset(write("bad.json", content)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "bad.json") {
			t.Errorf("%q: %v, want the file and %q", content, err, want)
		}
	}
}

func TestFreshDirRefusesOldHistories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var usage *UsageError
	if _, err := Claim("", dir, dir); !errors.As(err, &usage) {
		t.Errorf("one directory twice: %v", err)
	}
	release, err := Claim("", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := FreshDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(dir); !errors.Is(err, files.ErrInUse) {
		t.Errorf("a second claim: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := FreshDir(dir); err != nil {
		t.Errorf("a report does not matter: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0000"+trace.Extension), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(dir), link); err != nil {
		t.Fatal(err)
	}
	for _, above := range []string{filepath.Dir(dir), link, filepath.Dir(link)} {
		if err := FreshDir(above); !errors.As(err, &usage) {
			t.Errorf("a history below %s: %v", above, err)
		}
	}
}

func TestFilesAreNoTerminals(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if Terminal(f) || Terminal(new(bytes.Buffer)) || Width(f) != 80 {
		t.Error("a file or buffer counts as a terminal")
	}
}

// TestTextsOpenByName: files go before beginnings of texts of the same name.
func TestTextsOpenByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	for name, text := range map[string]string{file: "whole text", file + "[:2]": "a file"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{file: "whole text", file + "[:5]": "whole", file + "[:2]": "a file", file + "[:11]": "", file + "y[:2]": "", "default[:4]": string(data.Default().Bytes[:4])} {
		text, err := Text(name)
		if string(text.Bytes) != want || (err == nil) != (want != "") || err == nil && text.Name != name {
			t.Errorf("%q opens %q named %q: %v, want %q", name, text.Bytes, text.Name, err, want)
		}
	}
}

// TestGivenDoesNotWait: nobody may ever write to stdin.
func TestGivenDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, enough)
	defer cancel()
	var usage *UsageError
	if _, err := Given(ctx, "-", r); !errors.Is(err, enough) || errors.As(err, &usage) {
		t.Errorf("%v, want what ended it", err)
	}
	if text, err := Given(t.Context(), "-", strings.NewReader("x")); err != nil || text.Name != "-" || string(text.Bytes) != "x" {
		t.Errorf("%+v, %v", text, err)
	}
	if _, err := Given(t.Context(), "-", strings.NewReader("")); !errors.As(err, &usage) {
		t.Errorf("an empty one: %v", err)
	}
}
