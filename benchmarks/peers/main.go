// Command peers times the kernels of package cpu and, in the same run and in
// turn with them, the same work by others: matrix products by OpenBLAS, the
// kernels of a block and whole training steps by PyTorch in eager mode, and
// memory-bound kernels against a copy of as many bytes. It prints one table: medians of both, the median of
// the ratios of neighbours, and the ratio of the best of each, which a busy
// machine disturbs least.
//
//	go run ./benchmarks/peers -peers openblas,torch,copy,training -threads 1,2
//
// OpenBLAS needs a C compiler and libopenblas-dev (Debian: apt-get install
// libopenblas-dev); the program is built on the spot. PyTorch needs a python3
// with torch, named by -python. What is missing is an error, not left out.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// options are the flags.
type options struct {
	peers, python, isa, match string
	threads                   []int
	rounds                    int
}

func main() {
	var o options
	var threads string
	flag.StringVar(&o.peers, "peers", "openblas,copy", "who to compare with: openblas, torch (kernels), training (PyTorch, whole steps), copy")
	flag.StringVar(&o.python, "python", "python3", "interpreter that has torch")
	flag.StringVar(&o.isa, "isa", "", "instruction set: avx512 or avx2; OpenBLAS is forced to the same")
	flag.StringVar(&o.match, "match", "", "only cases whose name contains this")
	flag.StringVar(&threads, "threads", "1,2", "numbers of threads")
	flag.IntVar(&o.rounds, "rounds", 15, "measurements of each side per case")
	flag.Parse()
	for _, s := range strings.Split(threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "peers: -threads %q: want positive numbers\n", threads)
			os.Exit(2)
		}
		o.threads = append(o.threads, n)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(4)
	}
}

func run(o options) error {
	fmt.Printf("%-34s %7s %12s %12s %10s %10s %7s %7s\n", "case", "threads", "ours us", "peer us", "ours", "peer", "ratio", "best")
	for _, threads := range o.threads {
		for _, name := range strings.Split(o.peers, ",") {
			if err := compare(o, name, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare runs all cases of one peer.
func compare(o options, name string, threads int) error {
	backend, err := cpu.New(cpu.Options{ISA: o.isa, Threads: threads})
	if err != nil {
		return err
	}
	var p *turns.Peer
	var cases []comparison
	switch name {
	case "openblas":
		p, err = startOpenBLAS(backend.Name(), threads)
		cases = products()
	case "torch":
		p, err = startTorch(o.python, "eager.py", threads)
		cases = blocks()
	case "training":
		p, err = startTorch(o.python, "training.py", threads)
	case "copy":
		cases = streams()
	default:
		err = fmt.Errorf("peer %q: want openblas, torch, training or copy", name)
	}
	if err != nil {
		return err
	}
	if p != nil {
		defer p.Stop()
		fmt.Printf("# %s: %s; %s, %d threads\n", name, p.Banner, backend.Name(), threads)
	}
	if name == "training" {
		return compareTraining(o, backend, p, threads)
	}
	for _, c := range cases {
		if !strings.Contains(c.name, o.match) {
			continue
		}
		if err := c.measure(backend, p, threads, o.rounds); err != nil {
			return err
		}
	}
	return nil
}

func median(x []float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[len(s)/2]
}
