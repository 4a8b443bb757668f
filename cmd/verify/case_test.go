package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// words splits a command line as a POSIX shell does, so far as lines to
// reproduce need it.
func words(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	var b strings.Builder
	var quote rune
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && r == ' ':
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteRune(r)
		}
	}
	if quote != 0 {
		t.Fatalf("%s: a quote is not closed", line)
	}
	return out
}

// parse gives the contracts and options that a command line asks for.
func parse(t *testing.T, args []string) ([]*suite.Suite, contracts.Options) {
	t.Helper()
	var o options
	f := pflag.NewFlagSet("verify", pflag.ContinueOnError)
	o.flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	cs, err := o.selected()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if err := o.check(f); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	opts, err := o.driver(t.Context())
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return cs, opts
}

// described is all of a case that its runs compute; functions only show in keys.
func described(cs suite.Case) map[string]any {
	out := map[string]any{"name": cs.Name, "clauses": cs.Clauses}
	for role, r := range cs.Runs {
		out[string(role)] = []any{r.Key, r.Config}
	}
	return out
}

func TestEveryLineToReproduceSelectsItsCase(t *testing.T) {
	book := file(t, "a book.txt", strings.Repeat("What is done once is done again. ", 2000))
	for _, flags := range [][]string{
		nil,
		{"--level", "2"},
		{"--level", "3", "--seed", "7"},
		{"--config", "odd", "--steps", "3", "--backend", "ref"},
		{"--plan", "dp=3", "--plan", "dp=4,microbatches=4; dp=2,zero=3", "--data", book},
		{"--plan", "dp=2,tp=2,pp=2", "--config", "nano"},
	} {
		cs, opts := parse(t, flags)
		for _, c := range cs {
			for _, one := range opts.Cases(c) {
				line := words(t, opts.Reproduce(c, one))
				again, o := parse(t, line[1:])
				if line[0] != "verify" || len(again) != 1 || again[0].ID != c.ID {
					t.Fatalf("%q is not about %s", line, c.ID)
				}
				got := o.Cases(again[0])
				if len(got) != 1 {
					t.Fatalf("%q selects %d cases", line, len(got))
				}
				if d := cmp.Diff(described(one), described(got[0])); d != "" {
					t.Errorf("%q selects another case:\n%s", line, d)
				}
			}
		}
	}
}

func TestOneCaseIsVerified(t *testing.T) {
	code, stdout, stderr := call(t.Context(), "--case", "nano dp=4 of 5 sequences", "--steps", "1")
	if code != cli.OK || !strings.Contains(stdout, "plans      nano:dp=4\n") || !strings.Contains(stdout, "1 contract,") {
		t.Errorf("exit %d, stderr %q:\n%s", code, stderr, stdout)
	}
	if !strings.Contains(stdout, `note: C-TP-001: has no case "nano dp=4 of 5 sequences"`) {
		t.Errorf("contracts without the case are not named:\n%s", stdout)
	}
}
