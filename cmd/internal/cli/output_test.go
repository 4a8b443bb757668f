package cli

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
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
