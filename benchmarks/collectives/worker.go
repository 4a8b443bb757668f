package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// worker is the first argument of a process that carries ranks of ours.
const worker = "worker"

// profiles, in the environment, is a directory to which workers write what they spend
// their time with.
const profiles = "COLLECTIVES_PROFILES"

// place is which ranks a worker carries: all of a world of goroutines, one of another.
type place struct {
	by          string // the table's name
	rank, ranks int
	meet        string // where rank 0 listens
	on          string // the processors of the ranks, one each; empty is wherever the system puts them
}

// startOurs starts rank 0, which starts the others.
func startOurs(by string, ranks int) (*turns.Peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &place{by: by, ranks: ranks}
	if by != "local" {
		p.on = apart(ranks)
	}
	var peer *turns.Peer
	err = p.bound(func() (err error) {
		peer, err = turns.Start(exec.Command(self, p.args()...), "")
		return err
	})
	return peer, err
}

// apart are processors for ranks, one each, where there are enough: there each is
// fastest, as Open MPI's are.
func apart(ranks int) string {
	all := processors()
	if ranks > len(all) {
		return ""
	}
	var s []string
	for _, p := range all[:ranks] {
		s = append(s, strconv.Itoa(p))
	}
	return strings.Join(s, ",")
}

// bound starts a process on this rank's processor.
func (p *place) bound(start func() error) error {
	if p.on == "" {
		return start()
	}
	on, err := strconv.Atoi(strings.Split(p.on, ",")[p.rank])
	if err != nil {
		return fmt.Errorf("-on %q: %w", p.on, err)
	}
	return bound(on, start)
}

func (p *place) args() []string {
	return []string{worker, "-by", p.by, "-rank", strconv.Itoa(p.rank), "-ranks", strconv.Itoa(p.ranks), "-meet", p.meet, "-on", p.on}
}

// work is a worker: it says who it is, and answers requests until there are no more.
func work(args []string) error {
	var p place
	f := flag.NewFlagSet(worker, flag.ContinueOnError)
	f.StringVar(&p.by, "by", "", "how ranks reach each other")
	f.IntVar(&p.rank, "rank", 0, "which this is")
	f.IntVar(&p.ranks, "ranks", 0, "how many there are")
	f.StringVar(&p.meet, "meet", "", "where rank 0 listens")
	f.StringVar(&p.on, "on", "", "the processors of the ranks")
	if err := f.Parse(args); err != nil {
		return err
	}
	pool, err := p.pool()
	if err != nil {
		return err
	}
	be, err := cpu.New(cpu.Options{Threads: max(1, runtime.NumCPU()/p.ranks), Pool: pool})
	if err != nil {
		return err
	}
	ends, others, err := p.open(be)
	if err != nil {
		return err
	}
	if dir := os.Getenv(profiles); dir != "" {
		out, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d-of-%d.pprof", p.by, p.rank, p.ranks)))
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if p.rank == 0 {
		fmt.Printf("lockstep, %s, %d threads a rank%s\n", be.Name(), be.Threads(), where(p.on))
	}
	err = serve(be, ends, others, p.rank == 0)
	for _, e := range ends {
		err = errors.Join(err, e.Close())
	}
	return errors.Join(err, others.end())
}

// where says on which processors ranks are.
func where(on string) string {
	if on == "" {
		return ""
	}
	return ", on processors " + on
}

// serve answers requests, and tells the other workers of each.
func serve(be kernels.Backend, ends []comm.Communicator, others crew, answers bool) error {
	var vectors []kernels.Tensor
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var n, reps int
		if _, err := fmt.Sscanf(in.Text(), "allreduce %d %d", &n, &reps); err != nil {
			return fmt.Errorf("request %q: %w", in.Text(), err)
		}
		if err := others.tell(in.Text()); err != nil {
			return err
		}
		if vectors == nil || vectors[0].Len() != n {
			var err error
			if vectors, err = prepare(be, ends, vectors, n); err != nil {
				return err
			}
		}
		slowest, err := timed(ends, vectors, reps)
		if err != nil {
			return err
		}
		if answers {
			fmt.Println(slowest.Nanoseconds() / int64(reps))
		}
	}
	return nil
}

// each does something on all ranks that this process carries.
func each(ends []comm.Communicator, do func(i int, e comm.Communicator) error) error {
	var all errgroup.Group
	for i, e := range ends {
		all.Go(func() error { return do(i, e) })
	}
	return all.Wait()
}

// prepare makes vectors of n elements, sums them once, and looks whether the result is
// right. They are zeros then: sums of these stay what they are.
func prepare(be kernels.Backend, ends []comm.Communicator, old []kernels.Tensor, n int) ([]kernels.Tensor, error) {
	for _, t := range old {
		be.Free(t.Buf)
	}
	vectors := make([]kernels.Tensor, len(ends))
	for i := range ends {
		buf, err := be.Alloc(n)
		if err != nil {
			return nil, err
		}
		vectors[i] = kernels.Flat(buf)
	}
	return vectors, each(ends, func(i int, e comm.Communicator) error {
		x := make([]float32, n)
		for k := range x {
			x[k] = float32(e.Rank() + k%7)
		}
		be.Write(vectors[i], x)
		if err := e.AllReduce(context.Background(), vectors[i], kernels.Sum); err != nil {
			return err
		}
		be.Read(x, vectors[i])
		ranks := e.Size()
		for k, got := range x {
			if want := float32(ranks*(ranks-1)/2 + ranks*(k%7)); got != want {
				return fmt.Errorf("element %d of %d is %v, want %v", k, n, got, want)
			}
		}
		be.Write(vectors[i], make([]float32, n))
		return nil
	})
}

// timed is how long the slowest rank takes for some all-reduces.
func timed(ends []comm.Communicator, vectors []kernels.Tensor, reps int) (time.Duration, error) {
	ctx := context.Background()
	var slowest uint64
	var mu sync.Mutex
	err := each(ends, func(i int, e comm.Communicator) error {
		if err := e.AllReduce(ctx, vectors[i], kernels.Sum); err != nil { // warm
			return err
		}
		if err := e.Barrier(ctx); err != nil {
			return err
		}
		begun := time.Now()
		for range reps {
			if err := e.AllReduce(ctx, vectors[i], kernels.Sum); err != nil {
				return err
			}
		}
		took := []uint64{uint64(time.Since(begun))}
		err := e.AllReduceInt(ctx, took, kernels.Max)
		mu.Lock()
		defer mu.Unlock()
		slowest = max(slowest, took[0])
		return err
	})
	return time.Duration(slowest), err
}

// crew are the other workers, of rank 0's.
type crew []*member

// member is another worker.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// gather starts the workers of the other ranks.
func (p *place) gather(meet string) (crew, error) {
	self, err := os.Executable()
	if err != nil || p.rank > 0 {
		return nil, err
	}
	var all crew
	for r := 1; r < p.ranks; r++ {
		q := &place{p.by, r, p.ranks, meet, p.on}
		cmd := exec.Command(self, q.args()...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err == nil {
			err = q.bound(cmd.Start)
		}
		if err != nil {
			return nil, errors.Join(err, all.end())
		}
		all = append(all, &member{cmd, in})
	}
	return all, nil
}

// tell gives a request to all.
func (c crew) tell(request string) (err error) {
	for _, m := range c {
		_, e := fmt.Fprintln(m.in, request)
		err = errors.Join(err, e)
	}
	return err
}

// end waits until all have ended, which they do when there are no more requests.
func (c crew) end() (err error) {
	for _, m := range c {
		err = errors.Join(err, m.in.Close())
	}
	for _, m := range c {
		err = errors.Join(err, m.cmd.Wait())
	}
	return err
}
