package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// record trains nano for a step on a plan and saves the history, as any trainer
// would, in dir.
func record(t *testing.T, dir, plans string, text data.Text) {
	t.Helper()
	c, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if c.Plan, err = plan.Parse(plans); err != nil {
		t.Fatal(err)
	}
	c.Steps, c.Recording = 1, spec.Recording{Digests: true, Workers: true}
	open, err := cli.OpenBackend("ref", cli.Devices{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := launch.Local(t.Context(), c, text, launch.Parts{Backend: open})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.History.Save(dir); err != nil {
		t.Fatal(err)
	}
}

// tamper replaces, in the history of rank 1 below dir, the first weight digest
// after a step.
func tamper(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "0001"+trace.Extension)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	for i, line := range lines {
		if bytes.Contains(line, []byte(`"kind":"digest","rank":1,"step":0,"what":"weight"`)) {
			at := bytes.Index(line, []byte(`"digest":"`)) + len(`"digest":"`)
			line[at] = map[bool]byte{true: '1', false: '0'}[line[at] == '0']
			lines[i] = line
			if err := os.WriteFile(path, bytes.Join(lines, nil), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no weight digest in %s", path)
}

// judge runs verify --history, with all contracts unless args say otherwise.
func judge(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	code, stdout, stderr := call(t.Context(), append(args, "--history", dir)...)
	if stderr != "" {
		t.Errorf("stderr %q", stderr)
	}
	return code, stdout
}

// TestRequiredDevicesOfHistories: where real devices are required, what simulated ones have
// recorded is reported, with the mark, and is no pass.
func TestRequiredDevicesOfHistories(t *testing.T) {
	cs, opts := parse(t, []string{"--contract", "C-DATA-001"})
	for _, backend := range []string{"cuda-sm_90", "cuda-sm_90-simulated"} {
		dir := t.TempDir()
		record(t, dir, "dp=2", data.Default())
		path := filepath.Join(dir, "0001"+trace.Extension)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.Replace(b, []byte(`"backend":"ref"`), []byte(`"backend":"`+backend+`"`), 1)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for required, want := range map[string]int{"": cli.OK, cli.CUDA: cli.CannotRun} {
			o := options{histories: []string{dir}, formats: []string{"text"}, devices: cli.Devices{Require: required}}
			var out, errs bytes.Buffer
			code, err := o.report(t.Context(), cs, opts, &out, &errs)
			if backend == "cuda-sm_90" {
				want = cli.OK
			}
			if code != want || (err == nil) != (want == cli.OK) || err != nil && !strings.HasSuffix(err.Error(), dir+": simulated devices have computed some of it, and --require-device cuda wants real ones") {
				t.Errorf("%s, required %q: %d, %v\n%s", backend, required, code, err, out.String())
			}
			if marked := strings.HasPrefix(out.String(), "lockstep verification: held (simulated)\n"); marked != cli.Simulated(backend) {
				t.Errorf("%s: %s", backend, out.String())
			}
		}
	}
}

func TestRecordedRunsAreJudgedAgainstAControlMadeHere(t *testing.T) {
	dir := t.TempDir()
	record(t, filepath.Join(dir, "two"), "dp=2", data.Default())
	record(t, filepath.Join(dir, "four"), "dp=4", data.Default())
	code, stdout := judge(t, dir)
	if code != cli.OK || !strings.Contains(stdout, "held          C-DDP-001") || !strings.Contains(stdout, "nano:dp=4") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
	if !strings.Contains(stdout, "note: C-COMM-001") {
		t.Errorf("contracts without evidence are not named:\n%s", stdout)
	}
}

func TestRecordedControlsAreUsed(t *testing.T) {
	dir := t.TempDir()
	text := data.Text{Name: filepath.Join(dir, "gone.txt"), Bytes: data.Default().Bytes}
	record(t, filepath.Join(dir, "two"), "dp=2", text)
	code, stdout := judge(t, dir)
	if code != cli.Inconclusive || !strings.Contains(stdout, "no history of the control run") || !strings.Contains(stdout, "gone.txt") {
		t.Errorf("neither control nor text: exit %d:\n%s", code, stdout)
	}
	record(t, filepath.Join(dir, "one"), "dp=1", text)
	if code, stdout = judge(t, dir, "--contract", "C-DDP-001"); code != cli.OK {
		t.Errorf("with the control recorded: exit %d:\n%s", code, stdout)
	}
	// The text is gone, and this control has no elements: neither is held for want of
	// them.
	code, stdout = judge(t, dir)
	for _, want := range []string{"held          C-DDP-001", "inconclusive  C-NORM-001.6", "did not record its elements", "inconclusive  C-DATA-001.3"} {
		if code != cli.Inconclusive || !strings.Contains(stdout, want) {
			t.Errorf("without text and elements: exit %d, want %q:\n%s", code, want, stdout)
		}
	}
}

func TestEachContractTakesItsOwnControl(t *testing.T) {
	dir := t.TempDir()
	text := data.Text{Name: filepath.Join(dir, "gone.txt"), Bytes: data.Default().Bytes}
	record(t, filepath.Join(dir, "sharded"), "dp=4,zero=2", text)
	record(t, filepath.Join(dir, "one"), "dp=1", text)
	if code, stdout := judge(t, dir); code != cli.Inconclusive || !strings.Contains(stdout, "no control dp=4") {
		t.Errorf("a single worker is no control of a sharded run: exit %d:\n%s", code, stdout)
	}
	record(t, filepath.Join(dir, "whole"), "dp=4", text)
	code, stdout := judge(t, dir, "--contract", "C-DDP-001,C-ZERO-001")
	if code != cli.OK || !strings.Contains(stdout, "2 contracts, 15 clauses: 15 held") {
		t.Errorf("with both controls recorded: exit %d:\n%s", code, stdout)
	}
	if code, stdout = judge(t, dir, "--contract", "C-ZERO-001"); code != cli.OK {
		t.Errorf("one contract is judged by runs that it is not about: exit %d:\n%s", code, stdout)
	}
}

func TestSavedCasesKeepTheirClauses(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--contract", "C-DET-001", "--config", "nano", "--plan", "dp=8", "--steps", "1"}
	code, _, stderr := call(t.Context(), append(args, "--case", "nano dp=8,microbatches=1 again", "--out", dir)...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	_, stdout := judge(t, filepath.Join(dir, "histories"), "--contract", "C-DET-001")
	if !strings.Contains(stdout, "held          C-DET-001.1") || strings.Contains(stdout, "no golden run") {
		t.Errorf("the case of a plan that was asked for is judged by all clauses:\n%s", stdout)
	}
}

func TestAnotherTextOfTheSameNameIsNoControl(t *testing.T) {
	dir := t.TempDir()
	text := data.Text{Name: "default", Bytes: bytes.Replace(data.Default().Bytes, []byte("e"), []byte("a"), 1)}
	record(t, dir, "dp=2", text)
	if code, stdout := judge(t, dir); code != cli.Inconclusive || !strings.Contains(stdout, "SHA-256") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
}

func TestTamperedHistoriesAreViolations(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "dp=2", data.Default())
	tamper(t, dir)
	code, stdout := judge(t, dir)
	for _, want := range []string{"violated      C-DDP-001.2", "rank 1, step 0", "reproduce: verify --history " + dir + " --contract C-DDP-001 --backend cpu\n"} {
		if code != cli.Violated || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, want %q:\n%s", code, want, stdout)
		}
	}
}

// TestHistoriesOfSeveralDirectories: none of the directories is dropped, and the
// line to reproduce a finding names them all.
func TestHistoriesOfSeveralDirectories(t *testing.T) {
	root := t.TempDir()
	bad, good := filepath.Join(root, "bad"), filepath.Join(root, "good")
	record(t, bad, "dp=2", data.Default())
	record(t, good, "dp=4", data.Default())
	tamper(t, bad)
	for _, dirs := range [][]string{{bad, good}, {good, bad}} {
		code, stdout := judge(t, dirs[0], "--contract", "C-DDP-001", "--history", dirs[1])
		for _, want := range []string{"violated      C-DDP-001.2", "nano:dp=2", "nano:dp=4", "--history " + bad, "--history " + good} {
			if code != cli.Violated || !strings.Contains(stdout, want) {
				t.Errorf("%q: exit %d, want %q:\n%s", dirs, code, want, stdout)
			}
		}
	}
	if code, _, stderr := call(t.Context(), "--history", good, "--history", root+"/none"); code != cli.Usage || !strings.Contains(stderr, "none") {
		t.Errorf("one of two directories is not there: exit %d, %s", code, stderr)
	}
}

func TestBrokenFilesAreNamed(t *testing.T) {
	for content, want := range map[string]string{
		"":                          "empty",
		"not json\n":                "0000.ndjson:1",
		`{"schema":"other"}` + "\n": `schema "other"`,
		`{"schema":"lockstep/history/v2","world":0}` + "\n":                                  "world of 0 ranks",
		`{"schema":"lockstep/history/v2","world":1}` + "\n" + `{"kind":"digest","rank":5}`:   "event of rank 5",
		`{"schema":"lockstep/history/v2","world":1}` + "\n" + `{"kind":"digest","digest":1}`: "0000.ndjson:2",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000"+trace.Extension), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := call(t.Context(), "--history", dir)
		if code != cli.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, stderr %q, want %q", content, code, stderr, want)
		}
	}
}

// TestACutHistoryIsNoViolation, wherever between two lines it is cut: what it lacks
// was lost, not left out.
func TestACutHistoryIsNoViolation(t *testing.T) {
	for _, plans := range []string{"dp=2", "pp=2"} {
		dir := t.TempDir()
		record(t, dir, plans, data.Default())
		path := filepath.Join(dir, "0001"+trace.Extension)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(b, []byte("\n"))
		for _, n := range []int{3, len(lines) / 3, len(lines) / 2, len(lines) - 3} {
			if err := os.WriteFile(path, bytes.Join(lines[:n], nil), 0o644); err != nil {
				t.Fatal(err)
			}
			if code, stdout := judge(t, dir); code == cli.Violated {
				t.Errorf("%s, %d of %d lines of rank 1: exit %d:\n%s", plans, n, len(lines), code, stdout)
			}
		}
	}
}
