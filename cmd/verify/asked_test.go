package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/report"
)

// must runs the command, which must find that all is held.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(t.Context(), args...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("%q: exit %d, stderr %q, stdout:\n%s", args, code, stderr, stdout)
	}
	return stdout
}

// A clause's ID selects that clause, in runs, histories and self-tests.
func TestOneClause(t *testing.T) {
	one := regexp.MustCompile(`C-[A-Z]+-001\.\d+ `)
	dir := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{
		{"--contract", "c-ddp-001.2", "--config", "nano", "--plan", "dp=2", "--steps", "1"},
		{"--contract", "C-DDP-001.2", "--config", "nano", "--plan", "dp=2", "--steps", "1", "--out", dir},
		{"--contract", "C-DDP-001.2", "--history", filepath.Join(dir, "histories")},
		{"--contract", "C-DDP-001.2", "--self-test"},
	} {
		out := must(t, args...)
		if slices.Contains(args, "--out") {
			b, err := os.ReadFile(filepath.Join(dir, "report.txt"))
			if err != nil {
				t.Fatal(err)
			}
			out = string(b)
		}
		if got := one.FindAllString(out, -1); len(got) == 0 || strings.Count(out, "1 clause: 1 held") != 1 || slices.ContainsFunc(got, func(s string) bool { return s != "C-DDP-001.2 " }) {
			t.Errorf("%q: clauses %q in\n%s", args, got, out)
		}
	}
	out := must(t, "--contract", "C-DDP-001.2,C-KERN-001.3")
	if !strings.Contains(out, "2 contracts, 2 clauses: 2 held") {
		t.Errorf("two clauses:\n%s", out)
	}
}

const own = `{"vocab":256,"hidden":16,"layers":4,"heads":4,"kv_heads":2,"head_dim":4,"intermediate":24,"seq_len":24,"groups":{"tensor":2,"data":4},"optimizer":{"beta2":0.999,"clip":1}}`

// A configuration of one's own is verified, saved, judged again and reproduced.
func TestOwnConfiguration(t *testing.T) {
	config, dir := file(t, "mine.json", own), filepath.Join(t.TempDir(), "out")
	must(t, "--config", config, "--contract", "C-DDP-001,C-ZERO-001,C-TP-001,C-PIPE-001,C-NORM-001", "--steps", "2", "--format", "text,json", "--out", dir)
	text, err := os.ReadFile(filepath.Join(dir, "report.txt"))
	if err != nil || !strings.Contains(string(text), "mine:") || strings.Contains(string(text), "nano") {
		t.Errorf("%v; the report is not of mine:\n%s", err, text)
	}
	again := must(t, "--history", filepath.Join(dir, "histories"))
	if !strings.Contains(again, "mine:") {
		t.Errorf("judged again:\n%s", again)
	}
	cs, opts := parse(t, []string{"--config", config})
	for _, c := range cs {
		for _, one := range opts.Cases(c) {
			line := words(t, opts.Reproduce(c, one))
			same, o := parse(t, line[1:])
			if got := o.Cases(same[0]); len(got) != 1 || cmp.Diff(described(one), described(got[0])) != "" {
				t.Errorf("%q selects another case", line)
			}
		}
	}
}

// A contract that no default plan fits is left out by name, never held, and alone
// refused.
func TestOwnConfigurationThatDoesNotFit(t *testing.T) {
	config := file(t, "small.json", `{"vocab":256,"hidden":8,"layers":1,"heads":2,"kv_heads":1,"head_dim":4,"intermediate":8,"seq_len":8}`)
	code, out, _ := call(t.Context(), "--config", config, "--contract", "C-DDP-001,C-TP-001,C-PIPE-001", "--steps", "1")
	for _, want := range []string{"left out: C-TP-001: not judged: its case small dp=1,tp=2 does not fit", "left out: C-PIPE-001: not judged", "1 contract, 8 clauses: 8 held"} {
		if code != cli.Inconclusive || !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	code, _, stderr := call(t.Context(), "--config", config, "--contract", "C-TP-001")
	if code != cli.Usage || !strings.Contains(stderr, "tp=2: must divide groups.tensor=1 of model small") {
		t.Errorf("alone: exit %d, %q", code, stderr)
	}
}

// Several --history are all judged.
func TestSeveralHistories(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	must(t, "--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=2", "--steps", "1", "--out", a)
	must(t, "--contract", "C-DDP-001", "--config", "nano", "--plan", "dp=4", "--steps", "1", "--out", b)
	out := must(t, "--history", a, "--history", b, "--contract", "C-DDP-001")
	if !strings.Contains(out, "nano:dp=2 nano:dp=4") || !strings.Contains(out, "histories  "+a+", "+b) {
		t.Errorf("both are not judged:\n%s", out)
	}
	code, _, stderr := call(t.Context(), "--history", a, "--history", t.TempDir())
	if code != cli.Usage || !strings.Contains(stderr, "no history") {
		t.Errorf("an empty one beside it: exit %d, %q", code, stderr)
	}
}

// strip removes from a document what its schema marks as not deterministic, and
// lists the names of what it removed.
func strip(doc, schema map[string]any, defs map[string]any, removed map[string]bool) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		sub := p.(map[string]any)
		if sub["x-deterministic"] == false {
			if _, ok := doc[name]; ok {
				removed[name] = true
			}
			delete(doc, name)
			continue
		}
		if items, ok := sub["items"].(map[string]any); ok {
			sub = items
		}
		switch x := doc[name].(type) {
		case map[string]any:
			strip(x, sub, defs, removed)
		case []any:
			for _, e := range x {
				if m, ok := e.(map[string]any); ok {
					strip(m, sub, defs, removed)
				}
			}
		}
	}
}

// What the schema does not mark is the same in two runs, and what it marks is
// there.
func TestSchemaMarksWhatIsNotDeterministic(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(report.JSONSchema()), &schema); err != nil {
		t.Fatal(err)
	}
	var docs [2]map[string]any
	removed := map[string]bool{}
	for i := range docs {
		out := must(t, small("--format", "json")...)
		validate(t, out)
		if err := json.Unmarshal([]byte(out), &docs[i]); err != nil {
			t.Fatal(err)
		}
		strip(docs[i], schema, schema["$defs"].(map[string]any), removed)
	}
	if d := cmp.Diff(docs[0], docs[1]); d != "" {
		t.Errorf("two runs differ in what is not marked:\n%s", d)
	}
	for _, name := range []string{"date", "host", "seconds", "cores"} {
		if !removed[name] {
			t.Errorf("%s is not in the report, or not marked", name)
		}
	}
	e := docs[0]["environment"].(map[string]any)
	if want := contracts.CommandLine("verify", small("--format", "json")); e["command"] != want || e["level"] != 1.0 || e["seed"] != 1.0 {
		t.Errorf("command %q, level %v, seed %v: want %q, 1, 1", e["command"], e["level"], e["seed"], want)
	}
}

func TestJUnitHasTimes(t *testing.T) {
	var doc struct {
		Time   float64 `xml:"time,attr"`
		Suites []struct {
			Time      float64 `xml:"time,attr"`
			Timestamp string  `xml:"timestamp,attr"`
		} `xml:"testsuite"`
	}
	out := must(t, "--contract", "C-DDP-001,C-KERN-001.2", "--format", "junit")
	if err := xml.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, s := range doc.Suites {
		sum += s.Time
		if s.Time <= 0 || s.Timestamp == "" {
			t.Errorf("a suite took %v at %q", s.Time, s.Timestamp)
		}
	}
	if doc.Time <= 0 || sum <= 0 {
		t.Errorf("%v s in all, %v s of the contracts", doc.Time, sum)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	if out := must(t, "--version"); !strings.HasPrefix(out, "verify version ") || !strings.Contains(out, "go1.") {
		t.Errorf("version %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := must(t, "--completion", shell); !strings.Contains(out, "__complete") || !strings.Contains(out, "verify") {
			t.Errorf("%s:\n%.200s", shell, out)
		}
	}
	for flag, want := range map[string]string{"--contract": "C-TP-001", "--config": "nano", "--format": "junit", "--explain": "C-KERN-001", "--level": "3"} {
		if _, out, _ := call(t.Context(), "__complete", flag, ""); !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("%s completes %q", flag, out)
		}
	}
	if _, out, _ := call(t.Context(), "__complete", "--self"); !strings.HasPrefix(out, "--self-test") {
		t.Errorf("--self completes %q", out)
	}
}

func TestHelpListsConfigurations(t *testing.T) {
	if out := must(t, "--help"); !strings.Contains(out, "5,245,184") || !strings.Contains(out, "--config FILE.json describes") {
		t.Errorf("help:\n%s", out)
	}
}

// terminal is the master's end of a pseudo-terminal, which nobody reads.
func terminal(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil || !cli.Terminal(f) {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The document of the format, in the help, is a configuration.
func TestHelpsFormatIsOne(t *testing.T) {
	help := must(t, "--help")
	_, text, ok := strings.Cut(help, "--config FILE.json describes another one, in sizes of elements:\n")
	text, _, ended := strings.Cut(text, "and, where")
	if !ok || !ended {
		t.Fatalf("help:\n%s", help)
	}
	if _, err := cli.Preset(file(t, "helped.json", text)); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	_, block, _ := strings.Cut(help, text)
	block, _, _ = strings.Cut(block, "Exit codes")
	for _, key := range regexp.MustCompile(`"([a-z0-9_]+)"`).FindAllStringSubmatch(block, -1) {
		if key[1] == "adamw" || key[1] == "tensor" || key[1] == "data" {
			continue
		}
		body := strings.TrimSuffix(strings.TrimSpace(own), "}") + fmt.Sprintf(`,%q:%s}`, key[1], `"x"`)
		if _, err := cli.Preset(file(t, "key.json", body)); err != nil && strings.Contains(err.Error(), "unknown field") && !strings.Contains(optimizer, `"`+key[1]+`"`) {
			t.Errorf("%s: %v", key[1], err)
		}
	}
}

// optimizer are the keys that stand in its object.
const optimizer = `"name" "lr" "beta1" "beta2" "eps" "momentum" "decay" "clip" "warmup" "horizon" "min_lr"`

// Colours and lines that are rewritten are for terminals that show them, and for
// people who want them.
func TestPlainTerminals(t *testing.T) {
	tty := terminal(t)
	for _, c := range []struct {
		term, noColor  string
		colors, status bool
	}{{"xterm", "", true, true}, {"xterm", "1", false, true}, {"dumb", "", false, false}, {"dumb", "1", false, false}} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		s := newStatus(tty)
		if cli.Colors(tty) != c.colors || (s.progress() != nil) != c.status {
			t.Errorf("TERM=%s NO_COLOR=%s: colours %v, status %v", c.term, c.noColor, cli.Colors(tty), s.progress() != nil)
		}
		s.close()
	}
	var b bytes.Buffer
	if cli.Colors(&b) || newStatus(&b).progress() != nil {
		t.Error("a buffer is no terminal")
	}
}
