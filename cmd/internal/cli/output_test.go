package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestLostOutputIsNoResult(t *testing.T) {
	for code, want := range map[int]int{OK: CannotRun, Inconclusive: CannotRun, Violated: Violated, Usage: Usage, CannotRun: CannotRun} {
		var errs, kept bytes.Buffer
		good, lost := NewOutput(&kept), NewOutput(full{})
		if _, err := good.Write([]byte("x")); err != nil || good.Exit("tool", code, &errs) != code || errs.Len() > 0 || kept.String() != "x" {
			t.Errorf("code %d: %v, stderr %q", code, err, errs.String())
		}
		if _, err := lost.Write([]byte("x")); err == nil {
			t.Error("the error is lost")
		}
		told := code != Usage && code != CannotRun // what went wrong there is known already
		if got := lost.Exit("tool", code, &errs); got != want || strings.Contains(errs.String(), "tool: no space left") != told {
			t.Errorf("code %d: exit %d, want %d; stderr %q", code, got, want, errs.String())
		}
	}
	if under(NewOutput(os.Stdout)) != os.Stdout {
		t.Error("what an output is to is hidden")
	}
}

// TestLostHelpIsNoUsageError: what cobra prints by itself it prints before it runs.
func TestLostHelpIsNoUsageError(t *testing.T) {
	for _, c := range []struct {
		w    io.Writer
		args []string
		want int
	}{
		{full{}, []string{"--help"}, CannotRun}, {full{}, []string{"--version"}, CannotRun}, {full{}, nil, OK}, {full{}, []string{"--x"}, Usage},
		{io.Discard, []string{"--help"}, OK}, {io.Discard, []string{"--version"}, OK},
	} {
		out, code := NewOutput(c.w), new(int)
		cmd := &cobra.Command{Use: "tool", Version: "1", RunE: func(*cobra.Command, []string) error { return nil }}
		var errs bytes.Buffer
		if got := out.Exit("tool", Execute(t.Context(), cmd, c.args, out, &errs, code), &errs); got != c.want ||
			c.want == CannotRun && errs.String() != "tool: no space left\n" {
			t.Errorf("%q to %T: exit %d, want %d; stderr %q", c.args, c.w, got, c.want, errs.String())
		}
	}
}

func TestFlagsApart(t *testing.T) {
	call := func(args ...string) error {
		cmd := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
		for _, name := range []string{"a", "b", "c", "d"} {
			cmd.Flags().Bool(name, false, "")
		}
		Apart(cmd, "a", "b")
		Alone(cmd, "d", "a")
		cmd.SetArgs(args)
		return cmd.ExecuteContext(t.Context())
	}
	for args, want := range map[string]string{"--a --c": "", "--b --c": "", "--d --a": "", "--a --b": "--a and --b: have no meaning together; give one of them",
		"--c --d": "--d and --c: have no meaning together; give one of them"} {
		var usage *UsageError
		err := call(strings.Fields(args)...)
		if want == "" && err != nil || want != "" && (!errors.As(err, &usage) || err.Error() != want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
