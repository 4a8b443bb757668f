// Package kerneltest is the conformance suite of backends: whoever writes one
// calls
//
//	func TestConformance(t *testing.T) {
//		kerneltest.Run(t, func(t *testing.T) kernels.Backend { return open(t) })
//	}
//
// and, for speed, Bench from a benchmark. Every method is compared bit for bit
// (every NaN is one value, see kernels.Bits) with the float32 instance of
// package kernels/ref, over shapes at and around the sizes of tiles, sums
// longer than a block, all alignments, strides, groups, permitted aliases and
// special values. All buffers are compared whole, so that a write outside an
// output, or to an input, is found as surely as a wrong result. What is about
// memory, and what can be computed from integers alone (digests, sums of
// squares), is held against its definition and not against ref.
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

// selected reports whether the part runs.
func (o Options) selected(part string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, part)
}

// item is one case of a part, ready to run.
type item struct {
	name string
	work int
	run  func(b, oracle kernels.Backend) error
}

// part is one method, or one aspect, and its cases.
type part struct {
	name  string
	items []item
}

// parts lists the suite in order of reading: memory first, since every kernel's
// case depends on it.
func parts(o Options) []part {
	out := []part{{"Memory", memoryItems(o.Seed)}}
	for _, k := range kernelTables() {
		if !o.selected(k.name) {
			continue
		}
		t := &table{kernel: k.name, seed: o.Seed}
		k.fill(t)
		p := part{name: k.name}
		for _, c := range t.cases {
			p.items = append(p.items, item{name: c.name, work: c.work, run: c.check})
		}
		out = append(out, p)
	}
	out = append(out, part{"Misuse", misuseItems()})
	return slices.DeleteFunc(out, func(p part) bool { return !o.selected(p.name) })
}

// choose applies Case and MaxWork.
func (o Options) choose(items []item) []item {
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool {
		return o.Case != "" && it.name != o.Case || o.MaxWork > 0 && it.work > o.MaxWork
	})
}

// Run is the whole suite, with a subtest for each case. open is called once.
func Run(t *testing.T, open func(t *testing.T) kernels.Backend) {
	RunWith(t, open, Options{})
}

// RunWith is Run with options.
func RunWith(t *testing.T, open func(t *testing.T) kernels.Backend, o Options) {
	b, oracle := open(t), kernels.Backend(ref.New[float32]())
	for _, p := range parts(o) {
		t.Run(p.name, func(t *testing.T) {
			items, failed := o.choose(p.items), 0
			if len(items) == 0 {
				t.Errorf("%s: no case is left by %+v", p.name, o)
			}
			for _, it := range items {
				if failed >= o.failures() {
					t.Logf("%d cases failed: the rest of %s was not run", failed, p.name)
					return
				}
				if !t.Run(it.name, func(t *testing.T) {
					if err := it.run(b, oracle); err != nil {
						t.Errorf("%s %s: %v\nreproduce: go test -run '%s'", p.name, it.name, err, runPattern(t.Name()))
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
	oracle := ref.New[float32]()
	for _, p := range parts(o) {
		items, failed := o.choose(p.items), 0
		if len(items) == 0 {
			r.Errorf("%s: no case is left by %+v", p.name, o)
		}
		for _, it := range items {
			if failed >= o.failures() {
				break
			}
			ran++
			if err := it.run(b, oracle); err != nil {
				failed++
				r.Errorf("%s %s: %v\nreproduce: %s", p.name, it.name, err,
					fmt.Sprintf("kerneltest.Options{Seed: %d, Only: []string{%q}, Case: %q}", o.Seed, p.name, it.name))
			}
		}
	}
	return ran
}
