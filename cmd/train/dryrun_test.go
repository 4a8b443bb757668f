package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/dryrun"
)

func TestDryRunOfManyRanks(t *testing.T) {
	begun := time.Now()
	args := []string{"--dry-run", "--config", "llama2-7b", "--plan", "dp=64,tp=8,pp=8,zero=3,microbatches=32", "--sequences", "2048"}
	code, text, stderr := call(t.Context(), args...)
	if code != cli.OK || stderr != "" || !strings.Contains(text, "on 4096 ranks\n") {
		t.Fatalf("exit %d, stderr %q, stdout:\n%s", code, stderr, text)
	}
	code, stdout, stderr := call(t.Context(), append(args, "--format", "json")...)
	var r dryrun.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, stderr %q, %v", code, stderr, err)
	}
	var again strings.Builder
	if err := r.Text(&again); err != nil || again.String() != text {
		t.Errorf("%v; the JSON report prints\n%s\nwant\n%s", err, again.String(), text)
	}
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("two dry runs took %v", d)
	}
}

func TestDryRunRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`format "yaml": known are text, json`: {"--format", "yaml"},
		"--save: a dry run":                   {"--save", "out"},
		"--backend: a dry run":                {"--backend", "bogus"},
		"--resume: a dry run":                 {"--resume", "out"},
		"--log: a dry run":                    {"--log", "out"},
		"--steps: a dry run":                  {"--steps", "3"},
		"--lr: a dry run":                     {"--lr", "1"},
		"--history: a dry run":                {"--history", "out"},
		"--data: a dry run":                   {"--data", "book.txt"},
		"tp=3: must divide":                   {"--plan", "tp=3"},
		"sequences=0: must be":                {"--sequences", "0"},
		"more ranks than the 4 sequences":     {"--plan", "dp=8", "--sequences", "4"},
	} {
		code, stdout, stderr := call(t.Context(), append([]string{"--dry-run"}, args...)...)
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q: want %q", args, code, stdout, stderr, want)
		}
	}
}
