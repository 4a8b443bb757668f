package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/report"
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

func TestUsageErrorsNameValueAndRule(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "0000"+trace.Extension), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--contract", "C-DDP-999"}, `contract "C-DDP-999": known are C-DDP-001, C-ZERO-001, C-TP-001, C-PIPE-001, C-NORM-001, C-MODEL-001, C-DATA-001, C-CKPT-001, C-DET-001, C-COMM-001, C-KERN-001, C-ORDER-001`},
		{[]string{"--contract", ""}, "none is named"},
		{[]string{"--contract", "C-DDP-001.99"}, `clause "C-DDP-001.99": C-DDP-001 has C-DDP-001.1 to C-DDP-001.`},
		{[]string{"--completion", "tcsh"}, `completion "tcsh": known are bash, zsh, fish`},
		{[]string{"--config", "qwen3.5-9b"}, "qwen3.5-9b-shape"},
		{[]string{"--config", missing + ".json"}, "no such file"},
		{[]string{"--config", file(t, "unfit.json", `{"vocab":256,"hidden":32,"layers":4,"heads":8,"kv_heads":3,"head_dim":8,"intermediate":64,"seq_len":32}`)}, "kv_heads=3"},
		{[]string{"--history", used, "--history", ""}, "names no directory"},
		{[]string{"--explain", "C-X-1"}, `contract "C-X-1": known are`},
		{[]string{"--explain", ""}, `contract "": known are`},
		{[]string{"--case", ""}, "names no case"},
		{[]string{"--case", "nano dp=99"}, `case "nano dp=99": known at level 1 are C-DDP-001 "nano dp=2", `},
		{[]string{"--case", "nano dp=2", "--contract", "C-COMM-001"}, `C-COMM-001 "tree of 2 ranks"`},
		{[]string{"--case", "nano dp=2", "--self-test"}, "--self-test and --case: have no meaning together"},
		{[]string{"--case", "nano dp=2", "--history", used}, "--history and --case: have no meaning together"},
		{[]string{"--deadline", "0s"}, "deadline=0s: must be positive"},
		{[]string{"--deadline=-1s"}, "deadline=-1s: must be positive"},
		{[]string{"--plan", "dp=0"}, "dp=0: must be"},
		{[]string{"--plan", "dp=17"}, "dp=17: more ranks than the 16 sequences"},
		{[]string{"--plan", "dp=2;dp=99"}, "dp=99: more ranks"},
		{[]string{"--plan", "dp=14", "--config", "odd"}, "more ranks than the 13 sequences"},
		{[]string{"--plan", "dp=2,microbatches=3", "--config", "nano"}, "microbatches=3: must be a multiple of 4"},
		{[]string{"--plan", "dp=two"}, "dp=two"},
		{[]string{"--plan", "nonsense"}, "want key=value"},
		{[]string{"--plan", ""}, "names no plan"},
		{[]string{"--config", "giant"}, `config "giant": known are nano, odd`},
		{[]string{"--config", ""}, "names no configuration"},
		{[]string{"--data", missing}, missing},
		{[]string{"--data", ""}, "names no file"},
		{[]string{"--data", file(t, "empty.txt", "")}, "empty"},
		{[]string{"--data", file(t, "short.txt", "too short")}, "short.txt"},
		{[]string{"--history", missing}, "no such file"},
		{[]string{"--history", t.TempDir()}, "no history"},
		{[]string{"--history", used}, "empty"},
		{[]string{"--history", used, "--plan", "dp=2"}, "--history and --plan: have no meaning together"},
		{[]string{"--history", ""}, "names no directory"},
		{[]string{"--expect-ranks", "2"}, "expect-ranks=2: only histories"},
		{[]string{"--history", used, "--expect-ranks", "0"}, "expect-ranks=0: must be at least 1"},
		{[]string{"--backend", "abacus"}, `backend "abacus": known are cpu, ref, cuda`},
		{[]string{"--seed", "0"}, "seed=0: must be at least 1"},
		{[]string{"--seed=-1"}, `"-1"`},
		{[]string{"--steps", "0"}, "steps=0: must be at least 1"},
		{[]string{"--steps=-2"}, "steps=-2: must be at least 1"},
		{[]string{"--level", "0"}, "level=0: must be from 1 to 3"},
		{[]string{"--level", "4"}, "level=4: must be from 1 to 3"},
		{[]string{"--format", "yaml"}, `format "yaml": known are text, json, junit`},
		{[]string{"--format", "text,json"}, "several formats need --out"},
		{[]string{"--format", ""}, "none is named"},
		{[]string{"--out", ""}, "names no directory"},
		{[]string{"--out", used}, "of an earlier run"},
		{[]string{"--timeout", "0s"}, "timeout=0s: must be positive"},
		{[]string{"--timeout", "soon"}, `"soon"`},
		{[]string{"--duration", "1h"}, "belongs to --level 3"},
		{[]string{"--duration", "1ms", "--level", "3"}, "duration=1ms: must be at least 1s"},
		{[]string{"--self-test", "--plan", "dp=2"}, "--self-test and --plan: have no meaning together"},
		{[]string{"--list", "--explain", "C-DDP-001"}, "--list and --explain: have no meaning together"},
		{[]string{"--list", "--plan", "dp=2"}, "--list and --plan: have no meaning together"},
		{[]string{"--list", "--contract", "C-XXX-001"}, "C-XXX-001"},
		{[]string{"--explain", "C-DDP-001", "--contract", "C-TP-001"}, "--explain and --contract: have no meaning together"},
		{[]string{"--completion", "bash", "--steps", "1"}, "--completion and --steps: have no meaning together"},
		{[]string{"--frobnicate"}, "--frobnicate"},
		{[]string{"C-DDP-001"}, `"C-DDP-001": unexpected argument`},
	} {
		code, stdout, stderr := call(t.Context(), c.args...)
		if code != cli.Usage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q: want exit 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

func TestListOfSome(t *testing.T) {
	want := regexp.MustCompile(`(?m)^ *C-[A-Z]+-001(\.\d+)? `)
	for args, ids := range map[string]string{"C-ORDER-001": "C-ORDER-001 C-ORDER-001.1 C-ORDER-001.2 C-ORDER-001.3", "C-DDP-001.2": "C-DDP-001 C-DDP-001.2"} {
		code, stdout, _ := call(t.Context(), "--list", "--contract", args)
		if got := strings.Join(strings.Fields(strings.Join(want.FindAllString(stdout, -1), " ")), " "); code != cli.OK || got != ids {
			t.Errorf("%s: exit %d, %q, want %q", args, code, got, ids)
		}
	}
}

func TestListNamesEveryClause(t *testing.T) {
	code, stdout, stderr := call(t.Context(), "--list")
	if code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	for _, c := range contracts.All() {
		if !strings.Contains(stdout, c.ID+"  "+c.Title+"\n") {
			t.Errorf("list lacks %s", c.ID)
		}
		for _, cl := range c.Clauses {
			if !strings.Contains(stdout, cl.ID+"  ") || !strings.Contains(stdout, cl.Says+"\n") {
				t.Errorf("list lacks %s", cl.ID)
			}
		}
	}
}

func TestExplainSaysAllThatAContractKnows(t *testing.T) {
	for _, c := range contracts.All() {
		code, stdout, stderr := call(t.Context(), "--explain", strings.ToLower(c.ID))
		if code != cli.OK || stderr != "" {
			t.Fatalf("%s: exit %d, stderr %q", c.ID, code, stderr)
		}
		want := []string{c.Title, c.Statement, strings.TrimSpace(c.Doc), "verify --contract " + c.ID + " --self-test"}
		for _, cl := range c.Clauses {
			want = append(want, cl.ID, cl.Reads, cl.Derivation)
		}
		for _, m := range c.Mutants {
			want = append(want, "falsified by "+m.ID)
		}
		for _, w := range want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%s: lacks %q", c.ID, w)
			}
		}
		if _, byClause, _ := call(t.Context(), "--explain", c.Clauses[0].ID); byClause != stdout {
			t.Errorf("explaining clause %s does not explain its contract", c.Clauses[0].ID)
		}
	}
}

func TestHelpNamesExitCodesAndExamples(t *testing.T) {
	code, stdout, _ := call(t.Context(), "--help")
	for _, want := range []string{"Exit codes:", "0  held", "1  violated", "2  usage", "3  inconclusive", "4  could not run",
		"verify --self-test", "verify --level 3 --duration 8h"} {
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
	want := []string{"agent=-1", "agents=0", "backend=cpu", "case=", "completion=", "config=", "contract=[all]", "data=", "deadline=10m0s", "devices=", "duration=0s", "expect-agents=0", "expect-ranks=0", "explain=", "faults=[default]", "format=[text]", "history=[]",
		"interface=", "launch=goroutines", "level=1", "list=false", "local-rank=-1", "local_rank=-1", "out=", "plan=[]", "ports=", "rendezvous=", "require-device=", "seed=0", "self-test=false", "steps=0", "timeout=0s", "tls-ca=", "tls-cert=", "tls-key=", "token-file=", "transport=auto"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("scripts depend on the flags (-want +got):\n%s", d)
	}
}

func TestPlansAreSeparatedByBlanksAndSemicolons(t *testing.T) {
	got := splitPlans([]string{"dp=2,microbatches=4; dp=4", "dp=8 dp=1;", " "})
	if d := cmp.Diff([]string{"dp=2,microbatches=4", "dp=4", "dp=8", "dp=1"}, got); d != "" {
		t.Error(d)
	}
}

// small is a verification that takes well under a second.
func small(args ...string) []string {
	return append([]string{"--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=2", "--steps", "1"}, args...)
}

// machine replaces what differs between machines in a text report, and the
// amounts of evidence, which are the contracts' own business.
func machine(text string) string {
	text = regexp.MustCompile(`saw [0-9]+/[0-9]+ +`).ReplaceAllString(text, "saw ...  ")
	text = timeless(text)
	var out []string
	for line := range strings.Lines(text) {
		for _, name := range []string{"  version  ", "  machine  ", "  made  "} {
			if strings.HasPrefix(line, name) {
				line = name + "...\n"
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "")
}

// timeless leaves times out of a text report.
func timeless(text string) string {
	text = regexp.MustCompile(`(?m)^  made .*`).ReplaceAllString(text, "  made  ...")
	return regexp.MustCompile(`(?m)  \([0-9.e-]+ s\)$`).ReplaceAllString(text, "  (... s)")
}

func TestTextReportIsStable(t *testing.T) {
	code, first, stderr := call(t.Context(), small()...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, stderr %q, stdout:\n%s", code, stderr, first)
	}
	if _, second, _ := call(t.Context(), small()...); timeless(first) != timeless(second) {
		t.Errorf("two runs print different reports:\n%s", cmp.Diff(timeless(first), timeless(second)))
	}
	golden(t, "held.txt", machine(first))
}

func TestJSONReportFollowsTheSchema(t *testing.T) {
	code, stdout, stderr := call(t.Context(), small("--format", "json")...)
	if code != cli.OK {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	validate(t, stdout)
}

func validate(t *testing.T, document string) {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(report.JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
}

func TestOutHoldsReportsAndHistoriesThatJudgeAlike(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := call(t.Context(), small("--format", "text,json,junit", "--out", dir)...)
	if code != cli.OK || !strings.HasPrefix(stdout, "held: reports in "+dir) {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	content := map[string]string{}
	for _, name := range formats() {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		content[name] = string(b)
	}
	validate(t, content["report.json"])
	if err := xml.Unmarshal([]byte(content["report.xml"]), new(struct{})); err != nil {
		t.Error(err)
	}
	complete(t, dir)
	code, again, stderr := call(t.Context(), "--contract", "C-DDP-001", "--history", filepath.Join(dir, "histories"), "--format", "json", "--expect-ranks", "2")
	if code != cli.OK {
		t.Fatalf("judged again: exit %d, stderr %q\n%s", code, stderr, again)
	}
	if d := cmp.Diff(clauses(t, content["report.json"]), clauses(t, again)); d != "" {
		t.Errorf("run and files are judged differently:\n%s", d)
	}
}

// clauses are the clauses of a JSON report.
func clauses(t *testing.T, document string) any {
	t.Helper()
	var r struct {
		Contracts []struct{ Clauses any }
	}
	if err := json.Unmarshal([]byte(document), &r); err != nil || len(r.Contracts) != 1 {
		t.Fatalf("%v in %s", err, document)
	}
	return r.Contracts[0].Clauses
}

// complete fails if dir holds temporary files or histories without their end.
func complete(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".tmp") {
			t.Errorf("%s is left over", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneMissingRankIsInconclusiveByName(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := call(t.Context(), small("--out", dir)...); code != cli.OK {
		t.Fatal(stderr)
	}
	histories := filepath.Join(dir, "histories")
	lost, err := filepath.Glob(filepath.Join(histories, "*", "test", "0001"+trace.Extension))
	if err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	if err := os.Remove(lost[0]); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := call(t.Context(), "--contract", "C-DDP-001", "--history", histories)
	if code != cli.Inconclusive || !strings.Contains(stdout, "no history of ranks 1 of 2") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
}

func TestDeadlineReachesTheRanks(t *testing.T) {
	code, _, stderr := call(t.Context(), small("--deadline", "1ns")...)
	if code != cli.CannotRun || !strings.Contains(stderr, "deadline expired") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestTimeoutCannotRun(t *testing.T) {
	code, stdout, stderr := call(t.Context(), small("--timeout", "1ns")...)
	if code != cli.CannotRun || !strings.Contains(stdout, "the test run was not begun") || !strings.Contains(stderr, "--timeout 1ns has passed") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
