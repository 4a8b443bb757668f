package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

// Engine makes the histories of runs: those of equal keys once, side by side
// where there is memory for them, and nothing beside a run that must be alone.
// It is safe for concurrent use.
type Engine struct {
	// Parts are what all runs are made of.
	Parts launch.Parts
	// Text opens a training text by the name that a configuration gives.
	Text func(name string) (data.Text, error)
	// Texts gives clauses the bytes of a text that runs train on, read by other code
	// than Text; nil gives them Text's.
	Texts contract.Texts
	// Width is how many runs Run has go on at a time; 0 is one.
	Width int
	// Memory is how many bytes the runs that go on at a time may use together; 0 is
	// any number. A run that alone needs more ends before it begins.
	Memory int64
	// Devices is how many devices each process has, as Options say.
	Devices int
	// Patience, unless zero, bounds the parts' deadline in broken runs: in some a
	// rank waits for a peer that does not come.
	Patience time.Duration
	// Away, where not nil, makes the histories of runs in other processes: of all that
	// these can find, by what is said of them. Over says why none can be made there any
	// more; nil, and an Over that is nil, mean that some can.
	Away func(context.Context, Away) (*trace.History, error)
	Over func() error
	// Progress is told what happens: how far Run is and which run takes longest; nil
	// for none. It may be called concurrently.
	Progress func(Progress)

	mu    sync.Mutex
	watch watch
	jobs  map[string]*job     // by key
	room  *semaphore.Weighted // what is left of Memory
	alone sync.RWMutex        // held for writing by a run that must be alone, for reading by others
}

// job is one run to be made and what came of it.
type job struct {
	name     RunName // blank of a control that is made beside those
	unlisted bool    // only this process knows what the name means
	run      Run
	patience time.Duration

	counted bool // among those that progress expects
	once    sync.Once
	took    time.Duration  // from the begin of the run itself
	history *trace.History // after an error, what was recorded up to it
	err     error
	done    bool // the run has ended
	cut     bool // by the end of the context, not by itself
}

// job is the one that makes a run's history.
func (e *Engine) job(name RunName, unlisted bool, r Run) *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[r.Key]; j != nil && r.Key != "" {
		if r.Alone && !j.run.Alone { // no write where a run goes on
			j.run.Alone = true
		}
		return j
	}
	j := &job{name: name, unlisted: unlisted, run: r}
	if e.jobs == nil {
		e.jobs = map[string]*job{}
	}
	if r.Key != "" {
		e.jobs[r.Key] = j
	}
	return j
}

// Plan says what a case of the named contract's list runs, and runs nothing.
func (e *Engine) Plan(contractID string, c Case) *Trial { return e.plan(contractID, c, true) }

// PlanOther is Plan of a case that the contract does not list: other processes know of
// it only what is training and no more.
func (e *Engine) PlanOther(contractID string, c Case) *Trial { return e.plan(contractID, c, false) }

func (e *Engine) plan(contractID string, c Case, listed bool) *Trial {
	t := &Trial{Case: c, Contract: contractID, engine: e, unlisted: !listed, jobs: map[contract.Role]*job{}}
	for _, role := range c.Roles() {
		t.jobs[role] = e.job(RunName{contractID, c.Name, role, ""}, t.unlisted, c.Runs[role])
	}
	return t
}

// Run makes the histories of trials that are not there yet, in their order, those
// that must be alone last. What ends a run early is the trial's; the error is that of
// Over, or ctx's, alone, and then some have not begun.
func (e *Engine) Run(ctx context.Context, trials ...*Trial) error {
	all := distinct(trials)
	slices.SortStableFunc(all, func(a, b *job) int {
		switch {
		case a.run.Alone == b.run.Alone:
			return 0
		case a.run.Alone:
			return 1
		}
		return -1
	})
	var running errgroup.Group
	running.SetLimit(max(1, e.Width))
	e.expect(all)
	for _, j := range all {
		if ctx.Err() != nil || e.over() != nil {
			break
		}
		running.Go(func() error {
			if e.over() != nil {
				return nil
			}
			j.once.Do(func() {
				j.history, j.err = e.make(ctx, j)
				if j.err != nil {
					unrefused(j.history)
				}
				// A launcher ends the others when one of its processes has: that one is why.
				j.done, j.cut = true, j.err != nil && ctx.Err() != nil && e.over() == nil
			})
			return nil // what ends a run is the job's
		})
	}
	_ = running.Wait()
	if err := e.over(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// over is why no run can be made any more.
func (e *Engine) over() error {
	if e.Over == nil {
		return nil
	}
	return e.Over()
}

// texts gives clauses the bytes of the texts that runs train on.
func (e *Engine) texts(name string) ([]byte, error) {
	if e.Texts != nil {
		return e.Texts(name)
	}
	if e.Text == nil {
		return nil, fmt.Errorf("text %s: none can be opened here", name)
	}
	t, err := e.Text(name)
	return t.Bytes, err
}

// Make makes the history of a single run.
func (e *Engine) Make(ctx context.Context, r Run) (*trace.History, error) {
	return e.make(ctx, &job{run: r})
}

// make makes the history of a job. A panic of a run's own code is its error.
func (e *Engine) make(ctx context.Context, j *job) (h *trace.History, err error) {
	defer guard.Into(&err)
	if j.run.Alone {
		e.alone.Lock()
		defer e.alone.Unlock()
	} else {
		e.alone.RLock()
		defer e.alone.RUnlock()
	}
	release, err := e.admit(ctx, j.run.Config)
	if err != nil {
		return nil, err
	}
	defer release()
	end := e.begin(j)
	defer end()
	if h, done, err := e.away(ctx, j); done {
		return h, err
	}
	return e.here(ctx, j, nil)
}

// here makes the history of a job with the ranks of this process, which seat, unless
// nil, places among others.
func (e *Engine) here(ctx context.Context, j *job, seat func(*Env)) (*trace.History, error) {
	env := Env{Parts: e.Parts, Text: e.Text}
	if d := env.Parts.Deadline; j.patience > 0 && (d == 0 || d > j.patience) {
		env.Parts.Deadline = j.patience
	}
	if j.run.Parts != nil {
		j.run.Parts(&env.Parts)
	}
	if seat != nil {
		seat(&env)
	}
	if j.run.Do != nil {
		return j.run.Do(ctx, env)
	}
	env.Company = nil // who ends first need not wait
	return env.Train(ctx, *j.run.Config)
}

// admit refuses a training run whose ranks on this host need more memory than
// there is, and waits until others leave it its share; release gives that back.
func (e *Engine) admit(ctx context.Context, cfg *spec.Config) (release func(), err error) {
	if cfg == nil {
		return func() {}, nil
	}
	need, err := dryrun.Fits(*cfg, launch.Here, e.Memory)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.room == nil {
		e.room = semaphore.NewWeighted(e.Memory)
	}
	e.mu.Unlock()
	return func() { e.room.Release(need) }, e.room.Acquire(ctx, need)
}
