package contracts

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
)

// described is what the runs of a contract's cases compute, so far as keys and
// configurations say it.
func described(c *suite.Suite, o suite.Options) map[string]string {
	out := map[string]string{}
	for _, cs := range c.Cases(o) {
		for role, r := range cs.Runs {
			out[fmt.Sprint(cs.Name, "/", role)] = r.Key
			if r.Config != nil {
				out[fmt.Sprint(cs.Name, "/", role)] += string(r.Config.Spec())
			}
		}
	}
	return out
}

// TestContractsIgnoreWhatTheySayAndNothingElse: what a contract says to ignore
// changes none of its cases, whatever it is, and everything else changes some.
func TestContractsIgnoreWhatTheySayAndNothingElse(t *testing.T) {
	book := data.Text{Name: "book.txt", Bytes: append([]byte("What is done.\n\n"), data.Default().Bytes...)}
	base := suite.Options{Level: 1, Text: data.Default()}
	for option, all := range map[suite.Option][]func(*suite.Options){
		suite.PlanOption: {func(o *suite.Options) { o.Plans = []string{"dp=2"} }, func(o *suite.Options) { o.Plans = []string{"dp=3"} },
			func(o *suite.Options) { o.Plans = []string{"tp=2"} }},
		suite.ConfigOption: {func(o *suite.Options) { o.Config = "tiny" }},
		suite.StepsOption:  {func(o *suite.Options) { o.Steps = 17 }},
		suite.SeedOption:   {func(o *suite.Options) { o.Seed = 99 }},
		suite.DataOption:   {func(o *suite.Options) { o.Text = book }},
	} {
		for _, c := range All() {
			ignores := slices.Contains(c.Ignores, option)
			for _, set := range all {
				o := base
				set(&o)
				if same := reflect.DeepEqual(described(c, base), described(c, o)); same != ignores {
					t.Errorf("%s, %s: ignored is %v, said to be %v", c.ID, option, same, ignores)
				}
			}
		}
	}
}

// TestWhatIsAskedForIsJudged: options of which a contract does nothing, or, where it
// is asked for alone, not all, are refused by name; among others it is left out, and
// named.
func TestWhatIsAskedForIsJudged(t *testing.T) {
	for _, x := range []struct {
		contracts string
		change    func(*Options)
		refused   string // of the contracts together
		left      string // those left out of all contracts
	}{
		{"C-KERN-001", func(o *Options) { o.Plans = []string{"dp=2"} }, "C-KERN-001: has no case that depends on plan=dp=2",
			"ZERO TP PIPE MODEL COMM KERN ORDER"},
		{"C-KERN-001,C-COMM-001", func(o *Options) { o.Config, o.Steps = "odd", 2 },
			"C-KERN-001: has no case that depends on config=odd, steps=2; C-COMM-001: has no case that depends on config=odd, steps=2", "COMM KERN"},
		{"C-COMM-001", func(o *Options) { o.Text = data.Text{Name: "book.txt", Bytes: data.Default().Bytes} }, "", ""},
		{"C-COMM-001,C-KERN-001,C-MODEL-001", func(o *Options) { o.Seed = 7 }, "", ""},
		{"C-MODEL-001", func(o *Options) { o.Plans = []string{"dp=1"} }, "C-MODEL-001: has no case that depends on plan=dp=1", "DDP ZERO TP PIPE MODEL COMM KERN ORDER"},
		{"C-DET-001", func(o *Options) { o.Plans = []string{"dp=3"} }, "C-DET-001: no case takes the plans dp=3: dp=3 does not promise the bits of one worker on nano", "ZERO TP PIPE NORM MODEL CKPT DET COMM KERN ORDER"},
		{"C-CKPT-001", func(o *Options) { o.Plans, o.Config = []string{"dp=8"}, "odd" }, "C-CKPT-001: no case takes the plans dp=8: dp=8 does not promise the bits of one worker on odd", "ZERO TP PIPE NORM MODEL CKPT DET COMM KERN"},
		{"C-DET-001", func(o *Options) { o.Plans = []string{"dp=4", "tp=2"} }, "", "ZERO MODEL PIPE COMM KERN ORDER"},
		{"C-TP-001", func(o *Options) { o.Plans = []string{"dp=4", "tp=2"} }, "C-TP-001: no case takes the plans dp=4", "ZERO MODEL PIPE COMM KERN ORDER"},
		{"C-DDP-001", func(o *Options) { o.Plans = []string{"dp=2"} }, "", "ZERO TP PIPE MODEL COMM KERN ORDER"},
		{"C-DDP-001", func(o *Options) { o.Plans = []string{"dp=1"} }, "", "DDP ZERO TP PIPE MODEL COMM KERN ORDER"}, // inconclusive
	} {
		o := options()
		x.change(&o)
		var cs []*suite.Suite
		for id := range strings.SplitSeq(x.contracts, ",") {
			c, err := Find(id)
			if err != nil {
				t.Fatal(err)
			}
			cs = append(cs, c)
		}
		if err := o.checkSelection(cs); fmt.Sprint(err) == "<nil>" != (x.refused == "") || err != nil && !strings.Contains(err.Error(), x.refused) {
			t.Errorf("%s: %v, want %q", x.contracts, err, x.refused)
		}
		out, notes, _ := o.concerned(All())
		for _, c := range All() {
			short := strings.TrimSuffix(strings.TrimPrefix(c.ID, "C-"), "-001")
			left, named := !slices.Contains(suites(out), c.ID), strings.Contains(strings.Join(notes, "\n"), c.ID+": ")
			if want := slices.Contains(strings.Fields(x.left), short); left != want || left && !named {
				t.Errorf("%s with %v %s: left out is %v, named %v, want %v", c.ID, o.Plans, o.Config, left, named, want)
			}
		}
	}
}

func suites(cs []*suite.Suite) (out []string) {
	for _, c := range cs {
		out = append(out, c.ID)
	}
	return out
}

// TestOnlyWhatIsAskedForRuns: where a configuration takes none of the plans that are
// asked for, no other plans stand in for them.
func TestOnlyWhatIsAskedForRuns(t *testing.T) {
	for _, id := range []string{"C-DET-001", "C-CKPT-001"} {
		c, err := Find(id)
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.Plans = []string{"dp=8"} // odd has four logical workers
		nano := 0
		for _, cs := range o.Cases(c) {
			if strings.HasPrefix(cs.Name, "odd ") {
				t.Errorf("%s runs %q", id, cs.Name)
			}
			if strings.HasPrefix(cs.Name, "nano ") {
				nano++
			}
		}
		if nano == 0 {
			t.Errorf("%s runs nothing on nano, whose logical workers 8 divides", id)
		}
	}
}

// TestPartlyTakenPlansAreNoted: among other contracts, a plan that one does not take
// is named, and its lines to reproduce ask for the others only.
func TestPartlyTakenPlansAreNoted(t *testing.T) {
	o := options()
	o.Plans, o.Config = []string{"dp=4", "dp=3"}, "nano"
	out, notes, _ := o.concerned(All())
	if want := "C-DET-001: no case takes the plans dp=3: dp=3 does not promise the bits of one worker on nano"; !slices.Contains(suites(out), "C-DET-001") || !strings.Contains(strings.Join(notes, "; "), want) {
		t.Errorf("%v, notes %q, want %q", suites(out), notes, want)
	}
	c, err := Find("C-DET-001")
	if err != nil {
		t.Fatal(err)
	}
	if line := o.Reproduce(c, o.Cases(c)[0]); !strings.Contains(line, " --plan dp=4 ") {
		t.Errorf("%s asks for more than the contract takes", line)
	}
}
