// Package kerneltest is the conformance suite of backends: whoever writes one
// calls
//
//	func TestConformance(t *testing.T) {
//		kerneltest.Run(t, func(t *testing.T) kernels.Backend { return open(t) })
//	}
//
// and, for speed, Bench from a benchmark. Its cases are those of package drill,
// which says what they demand: the bits of the float32 instance of package
// kernels/ref, and no write to anything but an output.
//
// Cases are generated from a seed; a failing one prints how to run it alone.
package kerneltest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Reporter takes failures; *testing.T is one.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Options narrow a run. The zero value is the whole suite.
type Options struct {
	// Seed selects the values of all operands.
	Seed uint64
	// Level leaves out cases of higher levels, see drill.Options; 0 means none.
	Level int
	// Only names the parts to run: methods of kernels.Kernels, "Memory" and
	// "Misuse". Empty means all.
	Only []string
	// Case is the one case to run of each part; empty means all.
	Case string
	// MaxWork leaves out cases of more inner steps (about one multiply-add or
	// element each), for backends that are interpreted. 0 means none; below
	// that, a part that would lose all its cases is an error.
	MaxWork int
	// Failures is the number of failing cases reported per part before the rest
	// of it is left out. 0 means 3.
	Failures int
}

// failures is Failures with its default.
func (o Options) failures() int {
	if o.Failures == 0 {
		return 3
	}
	return o.Failures
}

// part is one method, or one aspect, and its cases.
type part struct {
	name  string
	cases []*drill.Case
}

// parts lists the suite in order of reading: also what is left without cases by
// the options.
func parts(o Options) (all []part) {
	for _, c := range drill.Cases(drill.Options{Seed: o.Seed, Level: o.Level, Only: o.Only}) {
		if len(all) == 0 || all[len(all)-1].name != c.Kernel {
			all = append(all, part{name: c.Kernel})
		}
		if o.Case != "" && c.Name != o.Case || o.MaxWork > 0 && c.Work > o.MaxWork {
			continue
		}
		p := &all[len(all)-1]
		p.cases = append(p.cases, c)
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(all, func(p part) bool { return p.name == name }) {
			all = append(all, part{name: name}) // no such part: an error
		}
	}
	return all
}

// checkCase is nil if the backend gives what the case demands.
func checkCase(c *drill.Case, b kernels.Backend) error {
	e, err := c.Expect(ref.New[float32]())
	if err != nil {
		return err
	}
	if _, d := e.Check(b); d != nil {
		return fmt.Errorf("%s %s: %s", c.Kernel, c.Name, d)
	}
	return nil
}

// Run is the whole suite, with a subtest for each case. open is called once.
func Run(t *testing.T, open func(t *testing.T) kernels.Backend) {
	RunWith(t, open, Options{})
}

// RunWith is Run with options.
func RunWith(t *testing.T, open func(t *testing.T) kernels.Backend, o Options) {
	b := open(t)
	for _, p := range parts(o) {
		t.Run(p.name, func(t *testing.T) {
			failed := 0
			if len(p.cases) == 0 {
				t.Errorf("%s: no case is left by %+v", p.name, o)
			}
			for _, c := range p.cases {
				if failed >= o.failures() {
					t.Logf("%d cases failed: the rest of %s was not run", failed, p.name)
					return
				}
				if !t.Run(c.Name, func(t *testing.T) {
					if err := checkCase(c, b); err != nil {
						t.Errorf("%v\nreproduce: go test -run '%s'", err, runPattern(t.Name()))
					}
				}) {
					failed++
				}
			}
		})
	}
}

// runPattern is the argument of -run that selects exactly one subtest.
func runPattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// Check is the suite for callers without a *testing.T: it reports failing
// cases of b to r and returns the number of cases it ran.
func Check(r Reporter, b kernels.Backend, o Options) (ran int) {
	r.Helper()
	for _, p := range parts(o) {
		failed := 0
		if len(p.cases) == 0 {
			r.Errorf("%s: no case is left by %+v", p.name, o)
		}
		for _, c := range p.cases {
			if failed >= o.failures() {
				break
			}
			ran++
			if err := checkCase(c, b); err != nil {
				failed++
				r.Errorf("%v\nreproduce: %s", err,
					fmt.Sprintf("kerneltest.Options{Seed: %d, Only: []string{%q}, Case: %q}", o.Seed, p.name, c.Name))
			}
		}
	}
	return ran
}
