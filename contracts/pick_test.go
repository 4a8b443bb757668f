package contracts

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/suite"
)

func TestPick(t *testing.T) {
	for ids, want := range map[string]string{
		"C-DDP-001":                           "C-DDP-001 8",
		"c-ddp-001.2":                         "C-DDP-001 1: C-DDP-001.2",
		"C-DDP-001.4,C-CKPT-001,C-DDP-001.2":  "C-DDP-001 2: C-DDP-001.2 C-DDP-001.4; C-CKPT-001 8",
		"C-DDP-001.4,C-DDP-001":               "C-DDP-001 8",
		"C-DDP-001,C-DDP-001.4":               "C-DDP-001 8",
		"C-DDP-001.4,C-DDP-001.4,C-DDP-001.4": "C-DDP-001 1: C-DDP-001.4",
	} {
		cs, err := Pick(strings.Split(ids, ","))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range cs {
			s := c.ID + " " + string(rune('0'+len(c.Clauses)))
			if whole, _ := Find(c.ID); len(c.Clauses) < len(whole.Clauses) {
				s += ":"
				for _, cl := range c.Clauses {
					s += " " + cl.ID
				}
			}
			got = append(got, s)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: %q, want %q", ids, strings.Join(got, "; "), want)
		}
	}
	if cs, err := Pick([]string{"C-DDP-001.2", "all"}); err != nil || len(cs) != len(All()) {
		t.Errorf("all: %d contracts, %v", len(cs), err)
	}
	for id, says := range map[string]string{
		"C-DDP-001.99": `clause "C-DDP-001.99": C-DDP-001 has C-DDP-001.1 to C-DDP-001.`,
		"C-DDP-001.":   "has C-DDP-001.1 to",
		"C-DDP-001.02": "has C-DDP-001.1 to",
		"C-X-001.1":    `contract "C-X-001": known are`,
	} {
		if _, err := Pick([]string{id}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", id, err, says)
		}
	}
}

// Every clause stands alone as a contract of its own would: it has cases, mutants,
// and none of the others'.
func TestEveryClauseStandsAlone(t *testing.T) {
	for _, c := range All() {
		for _, cl := range c.Clauses {
			cs, err := Pick([]string{cl.ID})
			if err != nil || len(cs) != 1 || len(cs[0].Clauses) != 1 || cs[0].Clauses[0].ID != cl.ID {
				t.Fatalf("%s: %v", cl.ID, err)
			}
			if err := Validate(cs); err != nil {
				t.Errorf("%s: %v", cl.ID, err)
			}
			for _, one := range cs[0].Cases(suite.Options{Level: 1}) {
				if !one.Shows(cl.ID) {
					t.Errorf("%s: case %s is no evidence for it", cl.ID, one.Name)
				}
			}
			if slices.ContainsFunc(cs[0].Mutants, func(m suite.Mutant) bool { return m.Clause != cl.ID }) {
				t.Errorf("%s: has mutants of other clauses", cl.ID)
			}
		}
		if whole, err := Find(c.ID); err != nil || len(whole.Clauses) != len(c.Clauses) {
			t.Errorf("%s: has lost clauses", c.ID)
		}
	}
}
