package drill

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Kernel names of the cases that are about no kernel.
const (
	Memory = "Memory" // kernels.Memory
	Misuse = "Misuse" // calls whose shapes do not fit, which must panic
)

// Options select cases. The zero value is all of them.
type Options struct {
	// Seed selects the values of all operands.
	Seed uint64
	// Level leaves out cases of higher levels; 0 means none. Level 1 is the least.
	Level int
	// Only names the kernels whose cases are wanted: methods of kernels.Kernels,
	// Memory and Misuse. Empty means all.
	Only []string
}

// Case is one call of one kernel, or one demand on memory.
type Case struct {
	// Kernel is a method of kernels.Kernels, Memory or Misuse.
	Kernel string
	// Name is unique among the cases of a kernel, the same for every seed.
	Name string
	// Level is the lowest one at which the case is run.
	Level int
	// Work is about the number of inner steps: multiply-adds or elements.
	Work int
	// Elements is how many elements a check compares that finds no difference:
	// outputs, inputs and guards. It is known without a backend.
	Elements int

	expect func(oracle kernels.Backend) (check, kernels.Digest, error)
}

// check compares a backend with what is expected of it and returns how many
// elements it compared.
type check func(b kernels.Backend) (elements int, d *Difference)

// Expected is a case with its inputs made and its results known. It may be
// checked on any number of backends.
type Expected struct {
	// Digest identifies the result: the elements that the kernel must set, in
	// their order, and what it must give beside tensors. It is zero where a case
	// demands something that has no elements.
	Digest kernels.Digest

	c     *Case
	check check
}

// Expect makes the inputs of the case and computes, on the backend that defines
// the arithmetic (package ref), what the kernel must make of them. An error is a
// fault of that backend.
func (c *Case) Expect(definition kernels.Backend) (e *Expected, err error) {
	fault := func(err error) error {
		return fmt.Errorf("%s %s: backend %s, which defines the result: %w", c.Kernel, c.Name, definition.Name(), err)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault(fmt.Errorf("panic: %v", p))
		}
	}()
	f, d, err := c.expect(definition)
	if err != nil {
		return nil, fault(err)
	}
	return &Expected{d, c, f}, nil
}

// Check runs the case on b. It returns the number of elements that were
// compared, guards and inputs included, and the first difference, or nil.
func (e *Expected) Check(b kernels.Backend) (elements int, d *Difference) {
	defer func() {
		if p := recover(); p != nil {
			d = failed(fmt.Errorf("panic: %v", p))
		}
		if d != nil {
			d.Kernel, d.Case = e.c.Kernel, e.c.Name
		}
	}()
	return e.check(b)
}

// Cases lists the cases in order of reading: memory first, since every kernel's
// case depends on it.
func Cases(o Options) []*Case {
	all := memoryCases(o.Seed)
	for _, k := range kernelTables() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, k.name) {
			continue
		}
		t := &table{kernel: k.name, seed: o.Seed, level: 1}
		k.fill(t)
		all = append(all, t.cases...)
	}
	all = append(all, misuseCases()...)
	return slices.DeleteFunc(all, func(c *Case) bool {
		return o.Level > 0 && c.Level > o.Level || len(o.Only) > 0 && !slices.Contains(o.Only, c.Kernel)
	})
}

// Result is what became of one case.
type Result struct {
	Case *Case
	// Elements is the number of elements that were compared.
	Elements int
	// Difference is nil where the backend gave what it must.
	Difference *Difference
	// Expected is what the case was checked against; it may be checked again.
	Expected *Expected
}

// Run checks the cases on b, one after the other, and gives each one's result to
// each, in order. What is expected is computed meanwhile, on the backend that
// defines the arithmetic, by all processors; b is called from the caller's
// goroutine only. The error is a fault of the definition, or that of ctx.
func Run(ctx context.Context, b, definition kernels.Backend, cases []*Case, each func(Result)) error {
	type answer struct {
		e   *Expected
		err error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	workers := runtime.GOMAXPROCS(0)
	ahead := make(chan chan answer, 4*workers) // in order of the cases
	work := make(chan func())
	for range workers {
		go func() {
			for f := range work {
				f()
			}
		}()
	}
	go func() {
		defer close(work)
		defer close(ahead)
		for _, c := range cases {
			out := make(chan answer, 1)
			select {
			case <-ctx.Done():
				return
			case ahead <- out:
			}
			work <- func() {
				e, err := c.Expect(definition)
				out <- answer{e, err}
			}
		}
	}()
	for out := range ahead {
		a := <-out
		if a.err != nil {
			return a.err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n, d := a.e.Check(b)
		each(Result{a.e.c, n, d, a.e})
	}
	return ctx.Err()
}
