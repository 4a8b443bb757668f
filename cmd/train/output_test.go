package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
)

// must runs the command, which must succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(t.Context(), args...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("%q: exit %d, stderr %q", args, code, stderr)
	}
	return stdout
}

// A resumed run prints the lines of the uninterrupted one, learning rate and all.
func TestResumedRunsPrintTheirLearningRate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ck")
	whole := must(t, "--steps", "11")
	must(t, "--steps", "10", "--save", dir)
	resumed := must(t, "--steps", "11", "--resume", dir)
	if got, want := lastLine(resumed), lastLine(whole); got != want || !strings.Contains(got, " lr 0.0006913 ") {
		t.Errorf("resumed:       %s\nuninterrupted: %s", got, want)
	}
	head, _, _ := strings.Cut(resumed, "\n")
	if want := "from " + filepath.Join(dir, checkpoint.DirName(10)) + " (step 10)"; !strings.HasSuffix(head, want) {
		t.Errorf("header %q: want %q", head, want)
	}
}

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		args  []string
		notes []string // each the beginning of a note
	}{
		{[]string{"--steps", "1"}, nil},
		{[]string{"--plan", "dp=4", "--steps", "1"}, nil},
		{[]string{"--plan", "dp=3", "--steps", "1"}, []string{"the bits are not the canonical ones: dp=3 does not divide groups.data=8 of nano"}},
		{[]string{"--plan", "dp=4,comm=ring", "--steps", "1"}, []string{"the bits are not the canonical ones: comm=ring adds in an order of its own"}},
		{[]string{"--plan", "dp=2,comm=ring", "--steps", "1"}, nil},
		{[]string{"--steps", "21"}, []string{"the learning rate is 0 from step 21 on: the schedule's horizon is 20"}},
		{[]string{"--steps", "3", "--warmup", "1", "--horizon", "2", "--min-lr", "1e-5"}, []string{"the learning rate is 1e-05 from step 3 on: the schedule's horizon is 2"}},
		{[]string{"--steps", "21", "--horizon", "0"}, nil},
		{[]string{"--steps", "20"}, nil},
	} {
		var got []string
		for line := range strings.Lines(must(t, c.args...)) {
			if n, ok := strings.CutPrefix(line, "note: "); ok {
				got = append(got, n)
			}
		}
		if !slices.EqualFunc(got, c.notes, strings.HasPrefix) {
			t.Errorf("%q: notes %q, want %q", c.args, got, c.notes)
		}
	}
}

// The note is right: these are the rates.
func TestScheduleFlags(t *testing.T) {
	out := must(t, "--steps", "4", "--lr", "1e-3", "--warmup", "1", "--horizon", "3", "--min-lr", "1e-4")
	var rates []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); f[0] == "step" {
			rates = append(rates, f[7])
		}
	}
	if want := []string{"0.001", "0.001", "0.00055", "0.0001"}; !slices.Equal(rates, want) {
		t.Errorf("rates %q, want %q in\n%s", rates, want, out)
	}
}

// lines are the JSON objects of an output.
func lines(t *testing.T, text string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var x map[string]any
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		out = append(out, x)
	}
	return out
}

func TestJSONAndLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.ndjson")
	out := lines(t, must(t, "--plan", "dp=3", "--steps", "2", "--format", "json", "--log", log, "--fingerprint"))
	var events []any
	for _, x := range out {
		events = append(events, x["event"])
	}
	if !slices.Equal(events, []any{"run", "step", "step", "end"}) {
		t.Fatalf("events %v", events)
	}
	if h := out[0]; h["model"] != "nano" || h["parameters"] != 65824.0 || h["ranks"] != 3.0 || h["steps"] != 2.0 || len(h["data_hash"].(string)) != 64 ||
		!strings.HasPrefix(h["backend"].(string), "cpu-") || len(h["notes"].([]any)) != 1 {
		t.Errorf("header %v", h)
	}
	if f := out[3]["fingerprint"]; f == nil || !strings.HasPrefix(f.(string), "weights=") {
		t.Errorf("end %v", out[3])
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	logged := lines(t, string(b))
	if len(logged) != 2 || logged[1]["step"] != 2.0 || logged[1]["loss"] != out[2]["loss"] || logged[0]["seconds"] == nil || out[1]["seconds"] != nil {
		t.Errorf("log %v", logged)
	}
	code, _, stderr := call(t.Context(), "--steps", "1", "--log", t.TempDir())
	if code != cli.CannotRun || !strings.Contains(stderr, "log: ") {
		t.Errorf("a directory as log: exit %d, %q", code, stderr)
	}
}

func TestQuiet(t *testing.T) {
	if out := must(t, "--plan", "dp=3", "--steps", "1", "--quiet"); out != "" {
		t.Errorf("printed %q", out)
	}
	for _, format := range []string{"text", "json"} {
		out := must(t, "--steps", "1", "--quiet", "--fingerprint", "--format", format)
		if strings.Count(out, "\n") != 1 || !strings.Contains(out, "weights=") {
			t.Errorf("printed %q", out)
		}
	}
}

// Stdin is a text like any other.
func TestDataFromStdin(t *testing.T) {
	text := strings.Repeat("What is done once is done again. ", 2000)
	of := func(stdin string, args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		cmd, code := command(&out, &errs)
		cmd.SetIn(strings.NewReader(stdin))
		c := cli.Execute(t.Context(), cmd, append(args, "--steps", "1", "--fingerprint", "--quiet"), &out, &errs, code)
		return c, out.String(), errs.String()
	}
	code, got, stderr := of(text, "--data", "-")
	_, want, _ := of("", "--data", file(t, "book.txt", text))
	if code != cli.OK || got != want || got == "" {
		t.Errorf("exit %d, %q: stdin gives %q, a file %q", code, stderr, got, want)
	}
	if code, _, stderr := of("", "--data", "-"); code != cli.Usage || !strings.Contains(stderr, `text "stdin": is empty`) {
		t.Errorf("nothing on stdin: exit %d, %q", code, stderr)
	}
}

// canceller ends a context when a text is written.
type canceller struct {
	bytes.Buffer
	at     string
	cancel func()
}

func (c *canceller) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.at)) {
		c.cancel()
	}
	return c.Buffer.Write(b)
}

// A run that is interrupted stores a checkpoint, from which it goes on as if
// nothing had been.
func TestInterruptedRunsStoreACheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ck")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs := &canceller{at: "step 3/", cancel: cancel}, new(bytes.Buffer)
	code := run(ctx, []string{"--plan", "dp=2,pp=2", "--steps", "5000", "--save", dir}, out, errs)
	if code != cli.CannotRun || !strings.Contains(errs.String(), "train: interrupted: ") || !strings.Contains(errs.String(), "--resume "+dir+" goes on") {
		t.Fatalf("exit %d, stderr %q", code, errs.String())
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := ck.Manifest.Step
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
	if n < 3 || n > 5 || !strings.HasPrefix(lastLine(out.String()), "step ") {
		t.Errorf("interrupted in step 3, the checkpoint is after %d:\n%s", n, out.String())
	}
	want := must(t, "--steps", "6", "--fingerprint", "--quiet")
	if got := must(t, "--steps", "6", "--resume", dir, "--plan", "tp=2", "--fingerprint", "--quiet"); got != want {
		t.Errorf("resumed %s, uninterrupted %s", got, want)
	}
}

// Every flag has a meaning for a dry run or is refused with it.
func TestDryRunKnowsEveryFlag(t *testing.T) {
	uses := []string{"config", "plan", "optimizer", "tied", "sequences", "dry-run", "format", "completion"}
	cmd, _ := command(nil, nil)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(uses, f.Name) == slices.Contains(notDry(), f.Name) {
			t.Errorf("--%s: must either be used by a dry run or be refused", f.Name)
		}
	})
}

func TestVersionAndCompletion(t *testing.T) {
	if out := must(t, "--version"); !strings.HasPrefix(out, "train version ") || !strings.Contains(out, "go1.") {
		t.Errorf("version %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := must(t, "--completion", shell); !strings.Contains(out, "__complete") || !strings.Contains(out, "train") {
			t.Errorf("%s:\n%.200s", shell, out)
		}
	}
	if _, out, _ := call(t.Context(), "__complete", "--config", ""); !strings.Contains(out, "\nllama3-8b\n") {
		t.Errorf("completes %q", out)
	}
}

func TestHelpListsConfigurations(t *testing.T) {
	out := must(t, "--help")
	for _, want := range []string{"50M                   79,180,288", "llama3-8b", "qwen3-4b-shape", "norms of queries and keys", `"groups": {"tensor"`} {
		if !strings.Contains(out, want) {
			t.Errorf("help lacks %q:\n%s", want, out)
		}
	}
}
