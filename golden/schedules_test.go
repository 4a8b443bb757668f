package golden_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
)

// Learning rates have the recorded bits, and the recorded numbers are those of
// the formula, evaluated with another cosine.
func TestSchedules(t *testing.T) {
	for _, v := range golden.ScheduleVariants() {
		t.Run(v.Name, func(t *testing.T) {
			if err := v.Config.Validate(); err != nil {
				t.Fatal(err)
			}
			if *update {
				s := &golden.Schedule{Name: v.Name}
				for i := range v.Steps {
					s.Rates = append(s.Rates, v.Config.At(i))
				}
				if err := trace.WriteFile(filepath.Join("schedules", v.Name+".txt"), func(w io.Writer) error { return s.Format(w) }); err != nil {
					t.Fatal(err)
				}
				return
			}
			s, err := golden.LoadSchedule(v.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Rates) != v.Steps || v.Steps <= v.Config.Horizon+1 || v.Steps <= v.Config.Warmup+1 {
				t.Errorf("%d steps are recorded, want %d, beyond warm-up and horizon", len(s.Rates), v.Steps)
			}
			for i, x := range s.Rates {
				if got := v.Config.At(i); got != x {
					t.Errorf("step %d has learning rate %v, recorded is %v", i, got, x)
				}
				if want := rate(v.Config, i); math.Abs(x-want) > 4e-16*v.Config.LR {
					t.Errorf("step %d: recorded is %v, the formula gives %v", i, x, want)
				}
			}
		})
	}
}

// rate is the schedule by its formula: linear to LR, then half a cosine to MinLR.
func rate(c optim.Config, t int) float64 {
	switch step := float64(t); {
	case t < c.Warmup:
		return c.LR * (step + 1) / float64(c.Warmup)
	case c.Horizon == 0:
		return c.LR
	case t > c.Horizon:
		return c.MinLR
	default:
		done := (step - float64(c.Warmup)) / float64(c.Horizon-c.Warmup)
		return c.MinLR + (c.LR-c.MinLR)*(1+math.Cos(math.Pi*done))/2
	}
}

// TestEveryScheduleHasAVariant keeps files of variants that no longer exist out.
func TestEveryScheduleHasAVariant(t *testing.T) {
	known := map[string]bool{}
	for _, v := range golden.ScheduleVariants() {
		known[v.Name+".txt"] = true
	}
	entries, err := os.ReadDir("schedules")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("schedules/%s belongs to no variant", e.Name())
		}
	}
}

func TestParseScheduleRefuses(t *testing.T) {
	var b bytes.Buffer
	if err := (&golden.Schedule{Name: "x", Rates: []float64{0.5, 0.25}}).Format(&b); err != nil {
		t.Fatal(err)
	}
	if s, err := golden.ParseSchedule(bytes.NewReader(b.Bytes())); err != nil || len(s.Rates) != 2 || s.Rates[1] != 0.25 {
		t.Fatalf("what was written reads as %v, %v", s, err)
	}
	for _, c := range []struct{ old, with, says string }{
		{"\n1 ", "\n2 ", "line 4"},
		{"0.25", "0.250001", "bits"},
		{"0.5", "half", "line 3"},
		{"3fe0000000000000", "xfe0000000000000", "line 3"},
		{" 0.25", "", "line 4"},
		{b.String(), "# nothing\n", "no steps"},
	} {
		text := strings.Replace(b.String(), c.old, c.with, 1)
		if _, err := golden.ParseSchedule(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q for %q: error %v, want one with %q", c.with, c.old, err, c.says)
		}
	}
	if _, err := golden.LoadSchedule("none"); err == nil || !strings.Contains(err.Error(), golden.Record) {
		t.Errorf("error %v: want the command that records", err)
	}
}
