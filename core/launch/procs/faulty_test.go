//go:build linux

package procs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// fault is what one agent does to itself, or what happens to it, in one phase of a run
// that stores checkpoints after every second step and records histories.
type fault struct {
	What, Phase string
	Agent       int
	Dir         string // of the run
}

// phases of a run, and faults.
const (
	joining    = "joining"
	firstStep  = "first step"
	midStep    = "mid step"      // of drillAt, in the reduction of its gradients
	betweenTwo = "between steps" // after drillAt
	storing    = "checkpoint"    // after drillAt
	lastStep   = "last step"     // after its optimizer, before its checkpoint and the end of the history
	ending     = "end"           // when the agent has done its part and has not said so

	killed  = "killed"
	stopped = "stopped"
	cut     = "cut off"   // what it says to the driver, and hears of it, is lost
	delayed = "far away"  // that takes a fifth of the deadline
	slow    = "slow"      // computes for longer than the deadline
	full    = "disk full" // files do not grow any more
)

func phases() []string {
	return []string{joining, firstStep, midStep, betweenTwo, storing, lastStep, ending}
}
func faults() []string { return []string{killed, stopped, cut, delayed, slow, full} }

// Drills have so many steps and agents, each with one rank; steps count from 0.
const (
	drillAgents, drillSteps, drillAt, drillPlan = 4, 6, 3, "dp=4,zero=1"
	drillSilence                                = 4 * time.Second
)

// victim is an agent that a fault may be of.
type victim struct {
	fault
	mine bool
	line *line // to its driver
	once sync.Once
}

// serveFaulty takes a seat until the fault, or to the end.
func serveFaulty(seat *Seat) int {
	v := &victim{}
	if err := json.Unmarshal([]byte(os.Args[2]), &v.fault); err != nil {
		return 2
	}
	if v.mine = v.Agent == seat.Agent; v.mine {
		v.line = &line{to: seat.Driver}
		var err error
		if seat.Driver, err = v.line.listen(); err != nil {
			return 2
		}
	}
	v.at(joining)
	code, err := seat.Serve(context.Background(), "a program", v.work)
	if err != nil {
		return 4
	}
	return code
}

// at is called in a phase, and does what there is to do then.
func (v *victim) at(phase string) {
	if !v.mine || v.Phase != phase {
		return
	}
	v.once.Do(func() {
		switch v.What {
		case killed:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case stopped:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {} // this thread may go on for a moment
		case cut:
			v.line.lost.Store(true)
		case delayed:
			v.line.late.Store(int64(300 * time.Millisecond))
		case slow:
			pause := drillSilence * 5 / 4
			if phase == joining {
				pause = drillSilence / 2
			}
			time.Sleep(pause)
		case full:
			_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: 1 << 40})
		}
	})
}

// work trains.
func (v *victim) work(ctx context.Context, j *Job) (*launch.Outcome, error) {
	var o order
	if err := json.Unmarshal(j.What, &o); err != nil {
		return nil, err
	}
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	parts := onRef()
	parts.History = filepath.Join(v.Dir, "history")
	parts.Checkpoints = train.Checkpoints{Dir: filepath.Join(v.Dir, "save"), Every: 2, Stop: func(int) bool { return false }}
	j.Join(&parts, Auto)
	j.Stream(&parts)
	ask := parts.Checkpoints.Stop
	parts.Checkpoints.Stop = func(step int) bool {
		if step == drillAt {
			v.at(betweenTwo)
		}
		return ask(step)
	}
	parts.Source = func(_ int, s train.Source) train.Source { return &source{s, v} }
	parts.Comm = func(_ int, _ names.Axis, c comm.Communicator) comm.Communicator { return &crossing{c, v} }
	parts.Counter = func(_, taken int) int {
		if taken == drillSteps {
			v.at(lastStep)
		}
		return taken
	}
	out, err := launch.Local(ctx, cfg, data.Default(), parts)
	v.at(ending)
	return out, err
}

// source tells of the first step.
type source struct {
	train.Source
	v *victim
}

func (s *source) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	s.v.at(firstStep)
	return s.Source.Sequences(step, worker, workers)
}

// crossing tells of the middle of a step, and of a checkpoint.
type crossing struct {
	comm.Communicator
	v *victim
}

func (c *crossing) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	if comm.LabelOf(ctx).Step == drillAt {
		c.v.at(midStep)
	}
	return c.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
}

func (c *crossing) Barrier(ctx context.Context) error {
	if l := comm.LabelOf(ctx); l.Tensor == names.Checkpoint && l.Step == drillAt {
		c.v.at(storing)
	}
	return c.Communicator.Barrier(ctx)
}

// line carries bytes between an agent and its driver, late or not at all if told so.
type line struct {
	to   string
	lost atomic.Bool
	late atomic.Int64 // by a time.Duration
}

// listen gives the address at which the driver is reached.
func (l *line) listen() (string, error) {
	ln, err := loopback()
	if err != nil {
		return "", err
	}
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				near.Close()
				continue
			}
			go l.carry(near, far)
			go l.carry(far, near)
		}
	}()
	return ln.Addr().String(), nil
}

// carry copies in one direction.
func (l *line) carry(from, to net.Conn) {
	type piece struct {
		b   []byte
		due time.Time
	}
	pieces := make(chan piece, 1<<10)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.b); err != nil {
				from.Close()
				return
			}
		}
	}()
	for {
		b := make([]byte, 1<<16)
		n, err := from.Read(b)
		if l.lost.Load() {
			_, _ = io.Copy(io.Discard, from)
			select {} // neither end hears that the other has gone
		}
		if err != nil {
			close(pieces)
			return
		}
		pieces <- piece{b[:n], time.Now().Add(time.Duration(l.late.Load()))}
	}
}

// args are those of agents of which one has a fault.
func (f fault) args() ([]string, error) {
	b, err := json.Marshal(f)
	return []string{faulty, string(b)}, err
}

func (f fault) String() string { return fmt.Sprintf("%-9s  %-13s  agent %d", f.What, f.Phase, f.Agent) }
