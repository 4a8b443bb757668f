package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// edited is a copy of the history in dir with other headers, and lines of which some
// are left out.
func edited(t *testing.T, dir string, header func(spec map[string]any, header map[string]any), drop string) string {
	t.Helper()
	out := t.TempDir()
	files, err := filepath.Glob(filepath.Join(dir, "*"+trace.Extension))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		first, rest, _ := bytes.Cut(b, []byte("\n"))
		var h map[string]any
		if err := json.Unmarshal(first, &h); err != nil {
			t.Fatal(err)
		}
		if header != nil {
			header(h["spec"].(map[string]any)["lockstep"].(map[string]any), h)
		}
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		for line := range bytes.Lines(rest) {
			if drop == "" || !bytes.Contains(line, []byte(drop)) {
				text = append(text, line...)
			}
		}
		if err := os.WriteFile(filepath.Join(out, filepath.Base(f)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Whatever a header claims, a judgement takes no longer than what is recorded, holds
// nothing of it, and says what lacks in a few words.
func TestClaimsAreNoEvidence(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	one := t.TempDir()
	record(t, one, "dp=1", data.Default())
	in := func(of, name string, x any) func(map[string]any, map[string]any) {
		return func(s, h map[string]any) {
			if of != "" {
				s, h["plan"] = s[of].(map[string]any), "" // a plan that it contradicts is refused
			}
			s[name] = x
		}
	}
	begun := time.Now()
	for _, x := range []struct {
		name, dir string
		header    func(spec, header map[string]any)
		says      string
	}{
		{"steps", dir, in("", "steps", 1_000_000_000), "steps 1 to 999999999 of 1000000000 are not recorded"},
		{"steps of one rank", one, in("", "steps", 1_000_000_000), "steps 1 to 999999999 of 1000000000 are not recorded"},
		{"micro-batches", dir, in("plan", "microbatches", 1<<20), "pieces of evidence are recorded, far too few"},
		{"sequences", dir, in("", "sequences", 1<<20), "pieces of evidence are recorded, far too few"},
		{"ranks", dir, func(_, h map[string]any) { h["world"] = 1 << 20 }, "no history of ranks 2 to 1048575 of 1048576"},
		{"ranks of a plan", dir, func(s, h map[string]any) {
			h["world"], s["sequences"], h["plan"] = 1<<16, 1<<16, ""
			s["plan"] = map[string]any{"dp": 1 << 16}
		}, "far too few for what the header claims: 65536 ranks"},
		{"the end", dir, nil, "did not record its end: its history is cut off"},
	} {
		drop := ""
		if x.header == nil {
			drop = `"kind":"end"`
		}
		code, stdout := judge(t, edited(t, x.dir, x.header, drop))
		if code != cli.Inconclusive || !strings.Contains(stdout, x.says) || strings.Contains(stdout, "  held ") || len(stdout) > 20_000 {
			t.Errorf("%s: exit %d, %d bytes, want %q:\n%.4000s", x.name, code, len(stdout), x.says, stdout)
		}
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("judged in %s", d)
	}
}

// A violation is one, whatever is cut off behind it.
func TestWhatIsCutOffCanBeViolated(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	tamper(t, dir)
	code, stdout := judge(t, edited(t, dir, nil, `"kind":"end"`))
	if code != cli.Violated || strings.Contains(stdout, "  held ") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
}

func TestUnknownFieldsOfHeadersAreRefused(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	for _, of := range []string{"", "model", "plan", "optimizer", "evidence"} {
		bad := edited(t, dir, func(s, _ map[string]any) {
			if of != "" {
				s = s[of].(map[string]any)
			}
			s["surprise"] = 1
		}, "")
		code, stdout, stderr := call(t.Context(), "--history", bad)
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, `unknown field "surprise"`) {
			t.Errorf("in %q: exit %d, stdout %q, stderr %q", of, code, stdout, stderr)
		}
	}
}

// What ends the command ends a judgement too.
func TestJudgementsEnd(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	code, stdout, stderr := call(t.Context(), "--history", dir, "--timeout", "1ns")
	if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, "--timeout 1ns has passed") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to end"))
	if code, stdout, _ = call(ctx, "--history", dir); code != cli.CannotRun || stdout != "" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
}
