// Command collectives times all-reduce of float32 between ranks of this host, ours and
// in the same rounds, in turn with it, that of others: over TCP against Open MPI and
// Gloo (through PyTorch), through shared memory and between goroutines against Open MPI
// in shared memory.
//
//	go run ./benchmarks/collectives -tables tcp,shm,local -rounds 15 -python python3
//
// It prints a line in the Go benchmark format for each side, and a table of ratios:
// medians of both, of the ratio of neighbours in time the median and the quartiles,
// and the ratio of the best of each. A round begins when others leave the machine alone,
// and is dropped and taken again where they did not until its end. All sides sum in place, zeros, after a sum that is checked;
// a measurement is as many calls one after another as take some 40 ms, of the slowest rank.
//
// Open MPI needs mpirun and mpicc (Debian: apt-get install openmpi-bin libopenmpi-dev
// gcc), Gloo a python3 with torch, named by -python. What is missing is left out by
// name. Our ranks are this program again, each a process that reaches the others as
// those of verify --launch procs do, without checksums, as there on loopback. Each is on
// a processor of its own where there are enough, on Linux, as Open MPI's are; Gloo's, of
// several threads, are where the system puts them, which is faster for most lengths.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	python string
	tables []string
	ranks  []int // none are all
	match  string
	rounds int
	quiet  float64
	wait   time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == worker {
		if err := work(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "collectives: worker:", err)
			os.Exit(4)
		}
		return
	}
	var o options
	var tables, ranks string
	flag.StringVar(&o.python, "python", "python3", "interpreter that has torch")
	flag.StringVar(&tables, "tables", strings.Join(names(), ","), "what to measure")
	flag.StringVar(&ranks, "ranks", "", "only with these numbers of ranks")
	flag.StringVar(&o.match, "match", "", "only rows whose name contains this")
	flag.IntVar(&o.rounds, "rounds", 15, "quiet rounds per row")
	flag.Float64Var(&o.quiet, "quiet", 0.05, "the share of all processors that others may use in a round")
	flag.DurationVar(&o.wait, "wait", 10*time.Minute, "how long to wait for quiet moments, for each number of ranks")
	flag.Parse()
	o.tables = strings.Split(tables, ",")
	for _, s := range strings.FieldsFunc(ranks, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 {
			usage("-ranks %q: want numbers of at least 2", ranks)
		}
		o.ranks = append(o.ranks, n)
	}
	if o.rounds < 1 || flag.NArg() > 0 {
		usage("-rounds %d %q: want a positive number, and nothing else", o.rounds, flag.Args())
	}
	for _, t := range o.tables {
		if !slices.Contains(names(), t) {
			usage("table %q: want %s", t, strings.Join(names(), ", "))
		}
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "collectives:", err)
		os.Exit(4)
	}
}

func usage(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "collectives: "+format+"\n", args...)
	os.Exit(2)
}

// run measures all groups of all tables. What is left out is said where it is, and
// again at the end.
func run(o options) error {
	dir, err := os.MkdirTemp("", "collectives")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := &machine{options: o, dir: dir}
	fmt.Print(header())
	var rows []string
	for _, t := range tables() {
		if !slices.Contains(o.tables, t.name) {
			continue
		}
		for _, n := range t.ranks {
			if len(o.ranks) > 0 && !slices.Contains(o.ranks, n) {
				continue
			}
			more, err := m.group(&t, n)
			if rows = append(rows, more...); err != nil {
				return errors.Join(err, fmt.Errorf("%s, %d ranks", t.name, n))
			}
		}
	}
	fmt.Print("\n", titles)
	for _, r := range rows {
		fmt.Print(r)
	}
	for _, s := range m.left {
		fmt.Println("# left out:", s)
	}
	return nil
}
