// Command corelines prints the lines of code of each package of core, without
// comments, blank lines and tests, and fails where core exceeds its budget: it
// should be readable in an afternoon.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// part is a share of core with a budget of its own.
type part struct {
	name   string
	trees  []string
	budget int // lines; 0 is none
}

// parts are matched in order; the last takes the rest of core.
func parts() []part {
	return []part{
		{"transports and launch", []string{"core/comm", "core/launch/...", "core/comm/engine/...", "core/comm/tcp/...", "core/comm/shm/...", "core/comm/mpi/...", "core/comm/nccl/...", "core/comm/wire/...", "core/comm/internal/..."}, 10300},
		{"test suites for others", []string{"core/comm/commtest/...", "core/drill/...", "core/trace/tracetest/..."}, 0},
		// What a run is, and the words that histories share: judges link these.
		{"names and specifications", []string{"core/names/...", "core/spec/..."}, 0},
		// What a plan and a schedule cost, without running them: no part of training.
		{"dry runs", []string{"core/dryrun/...", "core/schedule/simulator/..."}, 1750},
		// 4,500 for what the sketch of core held; the rest for what it did not:
		// pipeline schedules, checkpoints, the forms of histories, who waits for whom,
		// how files are opened, runs that are stopped and go on, evidence whose digests are
		// there later, devices that are named in it.
		{"core", []string{"core/..."}, 8200},
	}
}

func main() {
	if len(os.Args) > 1 {
		flag.Usage()
		os.Exit(2)
	}
	root, err := source.Root()
	if err != nil {
		fail(err)
	}
	files, err := source.Load(root)
	if err != nil {
		fail(err)
	}
	if !report(os.Stdout, files, parts()) {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "corelines:", err)
	os.Exit(4)
}

// report prints the count of each package by part, and whether all parts keep
// their budgets. A tree without code is no evidence and fails too.
func report(w io.Writer, files []*source.File, parts []part) (ok bool) {
	ok = true
	counts := make([]map[string]int, len(parts))
	for i := range counts {
		counts[i] = map[string]int{}
	}
	for _, f := range files {
		i := slices.IndexFunc(parts, func(p part) bool { return holds(p, f.Dir) })
		if i >= 0 && !f.Test() {
			counts[i][f.Dir] += f.CodeLines()
		}
	}
	for i, p := range parts {
		total, dirs := 0, make([]string, 0, len(counts[i]))
		for dir, n := range counts[i] {
			total += n
			dirs = append(dirs, dir)
		}
		slices.Sort(dirs)
		for _, dir := range dirs {
			fmt.Fprintf(w, "%7d  %s\n", counts[i][dir], dir)
		}
		note := "no budget"
		if p.budget > 0 {
			note = fmt.Sprintf("budget %d", p.budget)
			if total > p.budget {
				note, ok = note+": exceeded", false
			}
		}
		fmt.Fprintf(w, "%7d  = %s (%s)\n", total, p.name, note)
		if total == 0 && i == len(parts)-1 {
			fmt.Fprintf(w, "no code found in %s\n", p.name)
			ok = false
		}
	}
	return ok
}

func holds(p part, dir string) bool {
	return slices.ContainsFunc(p.trees, func(tree string) bool { return source.In(dir, tree) })
}
