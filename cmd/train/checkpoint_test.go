package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// lastLine is the last line of an output.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestSaveAndResumeUnderAnotherPlan(t *testing.T) {
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "ck")
	if code, _, errs := call(ctx, "--plan", "dp=2,zero=3", "--steps", "3", "--save", dir, "--save-every", "2"); code != cli.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, step := range []int{2, 3} {
		if _, err := os.Stat(filepath.Join(dir, checkpoint.DirName(step), checkpoint.ManifestName)); err != nil {
			t.Error(err)
		}
	}
	_, want, _ := call(ctx, "--steps", "5", "--fingerprint")
	code, got, errs := call(ctx, "--plan", "tp=2,pp=2", "--steps", "5", "--resume", dir, "--fingerprint")
	if code != cli.OK || lastLine(got) != lastLine(want) {
		t.Errorf("exit code %d: %s\nresumed:       %s\nuninterrupted: %s", code, errs, lastLine(got), lastLine(want))
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--resume", dir, "--steps", "3"}, "is after step 3, steps=3"},
		{[]string{"--resume", dir, "--lr", "1"}, "optimizer.lr is 0.001 there and 1 here"},
		{[]string{"--resume", dir, "--seed", "2"}, "seed is 1 there and 2 here"},
		{[]string{"--resume", filepath.Join(dir, "nowhere")}, "no such file"},
		{[]string{"--save-every", "2"}, "needs --save"},
		{[]string{"--deadline", "0s"}, "deadline=0s"},
	} {
		if code, _, errs := call(ctx, c.args...); code != cli.Usage || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit code %d, %q: want %d and %q", c.args, code, errs, cli.Usage, c.says)
		}
	}
	damaged := filepath.Join(dir, checkpoint.DirName(3), checkpoint.FileName(0))
	if err := os.Truncate(damaged, 100); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(ctx, "--resume", dir); code != cli.Usage || !strings.Contains(errs, "truncated") || !strings.Contains(errs, damaged) {
		t.Errorf("damaged: exit code %d, %q", code, errs)
	}
}

// A run that is interrupted says where its history is, which can be read.
func TestInterruptedHistoriesAreNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "h")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs := canceller{at: "step 3/", cancel: cancel}, bytes.Buffer{}
	code := run(ctx, []string{"--plan", "dp=2", "--steps", "5000", "--history", dir}, &out, &errs)
	if code != cli.CannotRun || !strings.Contains(errs.String(), "train: the history up to there is in "+dir+"\n") || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d, stderr %q", code, errs.String())
	}
	h, err := trace.Load(dir)
	if err != nil || len(h[0].Ranks) != 2 || h[0].CutOff() == "" {
		t.Errorf("%v, cut off %q", err, h[0].CutOff())
	}
	last := h[0].Ranks[0]
	if n := last[len(last)-1].Step; n < 2 || n > 1000 {
		t.Errorf("it ends with step %d", n)
	}
}

// What simulated devices have computed stays marked, whoever goes on with it and stores it
// again.
func TestCheckpointsOfSimulatedDevices(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	store(t, a, "1", "1")
	path := filepath.Join(a, checkpoint.DirName(1), checkpoint.ManifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	marked := strings.Replace(string(text), `"schema"`, `"simulated": true, "schema"`, 1)
	if err := os.WriteFile(path, []byte(marked), 0o644); err != nil || strings.Contains(string(text), "simulated") {
		t.Fatalf("%v: %s", err, text)
	}
	store(t, b, "1", "2", "--resume", a)
	for _, args := range []string{"--resume " + b, "--resume " + b + " --launch procs --agents 1"} {
		code, out, errs := call(t.Context(), strings.Fields("--steps 3 --fingerprint --quiet "+args)...)
		if code != cli.OK || !strings.HasSuffix(out, " (simulated)\n") {
			t.Errorf("%s: %d, %q, %s", args, code, out, errs)
		}
		markedRun(t, strings.Fields("--steps 3 "+args)...)
	}
}

// markedRun runs training of which some was on simulated devices: whatever it prints and
// writes says so.
func markedRun(t *testing.T, args ...string) {
	t.Helper()
	for _, format := range []string{"text", "json"} {
		dir := t.TempDir()
		log, history, save := filepath.Join(dir, "log"), filepath.Join(dir, "history"), filepath.Join(dir, "ck")
		code, out, errs := call(t.Context(), append([]string{"--fingerprint", "--format", format, "--log", log, "--history", history, "--save", save}, args...)...)
		if code != cli.OK {
			t.Fatalf("%d: %s", code, errs)
		}
		logged, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		files, err := trace.Load(history)
		if err != nil || len(files) != 1 {
			t.Fatalf("%d histories, %v", len(files), err)
		}
		for _, b := range files[0].Backends() {
			if !cli.Simulated(b) {
				t.Errorf("a history says its backend is %q", b)
			}
		}
		manifests, err := filepath.Glob(filepath.Join(save, "*", checkpoint.ManifestName))
		if err != nil || len(manifests) != 1 {
			t.Fatalf("%q, %v", manifests, err)
		}
		manifest, err := os.ReadFile(manifests[0])
		if err != nil || !strings.Contains(string(manifest), `"simulated"`) {
			t.Errorf("%v: %s", err, manifest)
		}
		r, err := contracts.JudgeHistories(t.Context(), []string{history}, contracts.All(), contracts.Options{})
		if err != nil || !r.Environment.Simulated() {
			t.Errorf("judged, its backend is %q, %v", r.Environment.Backend, err)
		}
		lines := strings.Split(strings.TrimSpace(out+string(logged)), "\n")
		if len(lines) < 4 {
			t.Errorf("%q", lines)
		}
		for _, line := range lines {
			where := strings.HasPrefix(line, "processes: ") // of no device
			if marked := strings.Contains(line, `"simulated":true`) || format == "text" && strings.Contains(line, "simulated"); !marked && !where {
				t.Errorf("not marked: %s", line)
			}
		}
	}
}

// TestDivergedRunsAreMarked: that ranks differ is said with the mark where their devices are
// simulated.
func TestDivergedRunsAreMarked(t *testing.T) {
	for _, simulated := range []bool{false, true} {
		o, p := options{}, &printer{simulated: simulated}
		h := &trace.History{Ranks: map[int][]trace.Event{0: {{Kind: trace.KindDiff}}}}
		var out, errs bytes.Buffer
		code, err := o.run(t.Context(), spec.Config{}, data.Text{}, p, &out, &errs, launch.Parts{}, func(context.Context, spec.Config, data.Text, launch.Parts) (*launch.Outcome, error) {
			return &launch.Outcome{History: h}, errors.New("ranks 0 and 1 differ")
		})
		if code != cli.Violated || err != nil || errs.String() != "train: ranks 0 and 1 differ"+cli.EndMark(simulated)+"\n" {
			t.Errorf("%d, %v, %q", code, err, errs.String())
		}
	}
}
