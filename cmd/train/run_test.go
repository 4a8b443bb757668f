package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// call runs the command and returns its exit code and outputs.
func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// file makes a file in a temporary directory.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// unfit describes a model whose sizes do not fit.
const unfit = `{"vocab":64,"hidden":8,"layers":1,"heads":6,"kv_heads":4,"head_dim":4,"intermediate":8,"seq_len":8}`

func TestUsageErrorsNameValueAndRule(t *testing.T) {
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "0000"+trace.Extension), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.txt")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", "giant"}, `config "giant": known are nano, odd`},
		{[]string{"--config", file(t, "unfit.json", unfit)}, "heads=6: must be a multiple of kv_heads=4"},
		{[]string{"--config", file(t, "typo.json", `{"vocabulary":64}`)}, "vocabulary"},
		{[]string{"--config", missing + ".json"}, "no such file"},
		{[]string{"--plan", "dp=0"}, "dp=0: must be"},
		{[]string{"--plan", "dp=17"}, "more ranks than the 16 sequences"},
		{[]string{"--plan", "dp=14", "--config", "odd"}, "more ranks than the 13 sequences"},
		{[]string{"--plan", "dp=2,microbatches=3"}, "microbatches=3: must be a multiple of 4"},
		{[]string{"--plan", "nonsense"}, "want key=value"},
		{[]string{"--plan", "dp=2 tp=2"}, "commas separate the parts of a plan, as in dp=2,tp=2"},
		{[]string{"--plan", "tp=8"}, "must divide groups.tensor=4 of model nano: sums over heads"},
		{[]string{"--config", "qwen3-4b"}, "qwen3-4b-shape"},
		{[]string{"--horizon=-1"}, "horizon=-1"},
		{[]string{"--warmup", "9", "--horizon", "9"}, "the horizon lies beyond the warm-up"},
		{[]string{"--min-lr", "2"}, "min_lr=2: must lie from 1.18e-38"},
		{[]string{"--format", "yaml"}, `format "yaml": known are text, json`},
		{[]string{"--log", ""}, "log: names no file"},
		{[]string{"--save", ""}, "save: names no file"},
		{[]string{"--completion", "tcsh"}, `completion "tcsh": known are bash, zsh, fish`},
		{[]string{"--steps", "0"}, "steps=0: must be from 1"},
		{[]string{"--steps=-3"}, "steps=-3: must be from 1"},
		{[]string{"--steps", "many"}, `"many"`},
		{[]string{"--optimizer", "adam"}, `optimizer "adam": known are adamw, sgd`},
		{[]string{"--optimizer", ""}, "known are adamw, sgd"},
		{[]string{"--lr", "0"}, "lr=0: must be greater than 0"},
		{[]string{"--lr=-1"}, "lr=-1: must be greater than 0"},
		{[]string{"--lr", "NaN"}, "lr=NaN: must be greater than 0"},
		{[]string{"--clip=-1"}, "clip=-1: must lie from"},
		{[]string{"--data", missing}, missing},
		{[]string{"--data", file(t, "empty.txt", "")}, "empty"},
		{[]string{"--data", file(t, "short.txt", "too short")}, "short.txt"},
		{[]string{"--data", t.TempDir()}, "directory"},
		{[]string{"--backend", "abacus"}, `backend "abacus": known are cpu, ref, cuda`},
		{[]string{"--history", used}, "of an earlier run"},
		{[]string{"--frobnicate"}, "--frobnicate"},
		{[]string{"extra"}, `"extra": unexpected argument`},
	} {
		code, stdout, stderr := call(t.Context(), c.args...)
		if code != cli.Usage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q: want exit 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

func TestEveryPlanEndsWithOneFingerprint(t *testing.T) {
	var lines []string
	for _, args := range [][]string{
		{}, {"--plan", "dp=4"}, {"--plan", "dp=2,microbatches=8"},
	} {
		code, stdout, stderr := call(t.Context(), append(args, "--steps", "2", "--fingerprint")...)
		if code != cli.OK || stderr != "" {
			t.Fatalf("%q: exit %d, stderr %q", args, code, stderr)
		}
		lines = append(lines, stdout)
	}
	whole := lines[0]
	for i, s := range lines {
		_, lines[i], _ = strings.Cut(s, "\n") // the plan
	}
	if lines[0] != lines[1] || lines[0] != lines[2] {
		t.Errorf("plans differ:\n%s", strings.Join(lines, "\n"))
	}
	if strings.Contains(lines[0], "norm 0 ") {
		t.Errorf("no gradient norm:\n%s", lines[0])
	}
	form := regexp.MustCompile(`^nano of 65824 parameters, plan dp=1,microbatches=8 on 1 rank, backend cpu-\w+, data default \(sha256 [0-9a-f]{12}\), seed 1\n` +
		`step 1/2 loss \d\.\d{4} norm [0-9.e+-]+ lr 0\.00025 tokens \d+\n` +
		`step 2/2 loss \d\.\d{4} norm [0-9.e+-]+ lr 0\.0005 tokens \d+\n` +
		`fingerprint weights=[0-9a-f]{32} moments=[0-9a-f]{32} loss=[0-9a-f]{8}\n$`)
	if !form.MatchString(whole) {
		t.Errorf("output:\n%s", whole)
	}
}

func TestFlagsOverrideThePreset(t *testing.T) {
	fingerprint := func(args ...string) string {
		code, stdout, stderr := call(t.Context(), append(args, "--steps", "1", "--fingerprint")...)
		if code != cli.OK {
			t.Fatalf("%q: exit %d: %s", args, code, stderr)
		}
		return stdout[strings.LastIndex(stdout, "fingerprint"):]
	}
	base := fingerprint()
	for _, args := range [][]string{{"--seed", "2"}, {"--lr", "0.01"}, {"--clip", "0.001"}, {"--tied"}, {"--optimizer", "sgd"}} {
		if fingerprint(args...) == base {
			t.Errorf("%q changes nothing", args)
		}
	}
	preset, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	o := preset.Optimizer
	for _, args := range [][]string{{"--seed", "1"}, {"--tied=false"}, {"--optimizer", o.Name}, {"--clip", fmt.Sprint(o.Clip)}, {"--lr", fmt.Sprint(o.LR)}} {
		if fingerprint(args...) != base {
			t.Errorf("%q is the preset's value and changes the run", args)
		}
	}
}

func TestHistoryIsRecordedPerRank(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	code, _, stderr := call(t.Context(), "--config", "odd", "--plan", "dp=2", "--steps", "1", "--history", dir)
	if code != cli.OK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	hs, err := trace.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(hs) != 1 || len(hs[0].Missing()) != 0 || hs[0].Header.World != 2 {
		t.Fatalf("%d histories, %+v", len(hs), hs[0].Header)
	}
	kinds := map[trace.Kind]bool{}
	for e := range hs[0].All {
		kinds[e.Kind] = true
	}
	for _, k := range []trace.Kind{trace.KindData, trace.KindDigest, trace.KindComm, trace.KindLeaf, trace.KindEnd} {
		if !kinds[k] {
			t.Errorf("no event of kind %s", k)
		}
	}
}

func TestInterruptedRunsSaySo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := call(ctx, "--plan", "dp=4", "--steps", "1000")
	if code != cli.CannotRun || !strings.Contains(stderr, "interrupted") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestUnwritableHistoryCannotRun(t *testing.T) {
	code, _, stderr := call(t.Context(), "--history", filepath.Join(file(t, "plain", "x"), "dir"))
	if code != cli.CannotRun || !strings.Contains(stderr, "plain") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestHelpNamesExitCodesAndExamples(t *testing.T) {
	code, stdout, _ := call(t.Context(), "--help")
	for _, want := range []string{"Exit codes:", "1  violated", "3  inconclusive", "train --plan dp=4,microbatches=2 --fingerprint", "--clip"} {
		if code != cli.OK || !strings.Contains(stdout, want) {
			t.Errorf("exit %d; help lacks %q", code, want)
		}
	}
}

func TestFlagsAreFrozen(t *testing.T) {
	cmd, _ := command(nil, nil)
	var got []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { got = append(got, f.Name+"="+f.DefValue) })
	slices.Sort(got)
	want := []string{"agent=-1", "agents=0", "backend=cpu", "clip=0", "completion=", "config=nano", "data=", "deadline=1h0m0s", "devices=", "dry-run=false", "expect-agents=0", "fingerprint=false", "format=text", "history=", "horizon=0", "interface=", "launch=goroutines", "local-rank=-1", "local_rank=-1",
		"log=", "lr=0", "min-lr=0", "optimizer=", "plan=dp=1", "ports=", "quiet=false", "rendezvous=", "require-device=", "resume=", "save-every=0", "save=", "seed=1", "sequences=0", "steps=20", "tied=false", "tls-ca=", "tls-cert=", "tls-key=", "token-file=", "transport=auto", "warmup=0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("scripts depend on the flags (-want +got):\n%s", d)
	}
}

func TestDecayDefaultsFollowTheOptimizer(t *testing.T) {
	for args, want := range map[string]float64{"": 0.1, "--optimizer=adamw": 0.1, "--optimizer=sgd": 0} {
		cmd, _ := command(nil, nil)
		if err := cmd.Flags().Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		o := options{config: "nano", backend: "ref", steps: 1, optimizer: strings.TrimPrefix(args, "--optimizer=")}
		c, _, err := o.configure(t.Context(), cmd.Flags())
		if err != nil || c.Optimizer.Decay != want {
			t.Errorf("%q: decay %v, %v; want %v", args, c.Optimizer.Decay, err, want)
		}
	}
}
