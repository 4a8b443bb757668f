// Command costs measures what two promises cost a training step, against the
// same code without them, in turn: the canonical order of sums (groups G and D
// against G = D = 1), over batch sizes, and verification at level 1 (digests of
// all state, gradients and workers, recorded) against plain training.
//
//	go run ./benchmarks/costs -threads 1,2 -rounds 15
//
// A row gives the medians of both sides, and of the ratio of neighbours in time
// the median and the quartiles. A busy machine disturbs the last two columns
// least: the ratio of the fastest steps, and the median ratio of processor time.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/benchmarks/step"
	"github.com/lockstep-ml/lockstep/benchmarks/turns"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// options are the flags.
type options struct {
	tables  []string
	threads []int
	rounds  int
	match   string
}

func main() {
	var tables, threads string
	var o options
	flag.StringVar(&tables, "tables", "order,verification", "what to measure")
	flag.StringVar(&threads, "threads", "1,2", "numbers of threads")
	flag.IntVar(&o.rounds, "rounds", 15, "measurements of each side per row")
	flag.StringVar(&o.match, "match", "", "only rows whose name contains this")
	flag.Parse()
	o.tables = strings.Split(tables, ",")
	for _, s := range strings.Split(threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || o.rounds < 1 {
			fmt.Fprintf(os.Stderr, "costs: -threads %q -rounds %d: want positive numbers\n", threads, o.rounds)
			os.Exit(2)
		}
		o.threads = append(o.threads, n)
	}
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(4)
	}
}

func run(o options, w io.Writer) error {
	fmt.Fprintf(w, "%-42s %7s %9s %9s %7s %17s %7s %7s\n", "with against without", "threads", "with ms", "without", "cost", "quartiles", "best", "cpu")
	for _, threads := range o.threads {
		b, err := cpu.New(cpu.Options{Threads: threads})
		if err != nil {
			return err
		}
		for _, name := range o.tables {
			switch name {
			case "order":
				err = order(o, b, w)
			case "verification":
				err = verification(o, b, w)
			default:
				err = fmt.Errorf("table %q: want order or verification", name)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// compare prints the row of two configurations, and gives the median ratio of
// their steps.
func compare(o options, b *cpu.Backend, w io.Writer, name string, with, without spec.Config) (float64, error) {
	a, err := step.Start(with, b)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	z, err := step.Start(without, b)
	if err != nil {
		return 0, err
	}
	defer z.Close()
	var failed error
	timed := func(t *step.Training, used *[]float64) func() float64 {
		return func() float64 {
			d, u, err := t.Step()
			if err != nil {
				failed = err
			}
			*used = append(*used, u.Seconds())
			return d.Seconds() * 1e3
		}
	}
	var usedA, usedZ []float64
	rounds := max(3, min(o.rounds, int(longest/(2*a.Last().Elapsed))))
	x, y := turns.Alternate(rounds, timed(a, &usedA), timed(z, &usedZ))
	if failed != nil {
		return 0, fmt.Errorf("%s: %w", name, failed)
	}
	_, mx, _ := turns.Quartiles(x)
	_, my, _ := turns.Quartiles(y)
	q1, q2, q3 := turns.Quartiles(turns.Ratios(x, y))
	_, used, _ := turns.Quartiles(turns.Ratios(usedA, usedZ))
	fmt.Fprintf(w, "%-42s %7d %9.1f %9.1f %7.3f %17s %7.3f %7.3f\n", name, b.Threads(), mx, my,
		q2, fmt.Sprintf("%.3f to %.3f", q1, q3), slices.Min(x)/slices.Min(y), used)
	return q2, nil
}

// longest is about the most time that one row takes.
const longest = 90 * time.Second
