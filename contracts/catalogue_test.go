package contracts

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// catalogue reads a list of rows, each with what stands behind its ID.
func catalogue(t *testing.T, name string) (ids []string, says map[string]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	says = map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		id, why, _ := strings.Cut(line, " ")
		if _, twice := says[id]; twice || !regexp.MustCompile(`^[BC][0-9]{2,3}$`).MatchString(id) {
			t.Errorf("%s: row %q is there twice, or none", name, id)
		}
		ids, says[id] = append(ids, id), strings.TrimSpace(why)
	}
	if !slices.IsSorted(ids) {
		t.Errorf("%s: the rows are not sorted", name)
	}
	return ids, says
}

// Every open row of the catalogue is a mutant's, or the list says why not; no
// mutant stands for a row that the list does not have.
func TestRowsOfTheCatalogue(t *testing.T) {
	ids, says := catalogue(t, "rows.txt")
	mutants := map[string][]string{}
	for _, f := range Faults(All()) {
		for _, row := range f.Rows {
			mutants[row] = append(mutants[row], f.FaultID())
			if strings.HasPrefix(row, "B") && !slices.Contains(ids, row) {
				t.Errorf("%s stands for row %s, which rows.txt does not have", f.FaultID(), row)
			}
		}
	}
	for _, id := range ids {
		if (len(mutants[id]) > 0) == (says[id] != "") {
			t.Errorf("row %s: mutants %v and the reason %q: one of them it must have", id, mutants[id], says[id])
		}
	}
}

// Runs that were taken for wrong ones elsewhere violate nothing.
func TestHealthyCases(t *testing.T) {
	if _, says := catalogue(t, "healthy.txt"); len(says) != 12 {
		t.Errorf("%d rows of correct runs, want 12", len(says))
	}
	ownSeeds := fault.OnConfig(func(rank int, c *spec.Config) { c.Seed += uint64(rank) })
	for _, c := range []struct {
		row, config, plan string
		change            fault.Fault
		must              string // must be held
	}{
		{"C03", "odd", "dp=4,zero=2", nil, "C-ZERO-001.2"},
		{"C03", "odd", "dp=4,zero=3,shard=tensors", nil, "C-ZERO-001.2"},
		{"C04", "nano", "dp=4,comm=ring", nil, "C-DDP-001.4"},
		{"C04", "nano", "dp=4,comm=star", nil, "C-DDP-001.4"},
		{"C05", "odd", "dp=4", nil, "C-DDP-001.4"},
		{"C06", "nano", "dp=4", ownSeeds, "C-DDP-001.1"},
		{"C12", "odd", "dp=4,zero=1", nil, "C-ZERO-001.2"},
	} {
		t.Run(c.row+" "+c.plan, func(t *testing.T) {
			t.Parallel()
			cfg, err := spec.Preset(c.config)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Plan, err = plan.Parse(c.plan); err != nil {
				t.Fatal(err)
			}
			cfg.Steps, cfg.Model.SeqLen = 2, 11
			cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true, Capture: !cfg.Plan.Exact(cfg.Model)}
			j, err := JudgeRun(t.Context(), cfg, c.change, full())
			if err != nil || j.Err != nil {
				t.Fatal(err, j.Err)
			}
			for _, r := range j.Violated() {
				t.Errorf("%s: a false alarm: %s", r.Clause.ID, describe(r))
			}
			if !slices.ContainsFunc(j.Held(), func(r contract.Result) bool { return r.Clause.ID == c.must }) {
				t.Errorf("%s is not held", c.must)
			}
		})
	}
}
