package contracts

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/dryrun"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// job is one run to be made and what came of it.
type job struct {
	label string
	run   suite.Run
	// deadline, unless zero, bounds the parts' deadline.
	deadline time.Duration
	alone    bool // nothing else may run meanwhile

	history *trace.History // after an error, what was recorded up to it
	err     error
}

// planned is a case with the jobs that make its histories.
type planned struct {
	contract *suite.Suite
	cs       suite.Case
	jobs     map[contract.Role]*job
}

// queue collects jobs; runs of equal keys become one job.
type queue struct {
	jobs  []*job
	byKey map[string]*job
}

func (q *queue) add(label string, r suite.Run) *job {
	if j := q.byKey[r.Key]; j != nil && r.Key != "" {
		j.alone = j.alone || r.Alone
		return j
	}
	j := &job{label: label, run: r, alone: r.Alone}
	q.jobs = append(q.jobs, j)
	if r.Key != "" {
		if q.byKey == nil {
			q.byKey = map[string]*job{}
		}
		q.byKey[r.Key] = j
	}
	return j
}

// plan queues the runs of a case.
func (q *queue) plan(c *suite.Suite, cs suite.Case) *planned {
	p := &planned{contract: c, cs: cs, jobs: map[contract.Role]*job{}}
	for _, role := range roles(cs) {
		p.jobs[role] = q.add(fmt.Sprintf("%s, %s, %s run", c.ID, cs.Name, role), cs.Runs[role])
	}
	return p
}

// roles are the roles of a case, sorted.
func roles(cs suite.Case) []contract.Role {
	var out []contract.Role
	for r := range cs.Runs {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

// width is how many runs go on at a time: ranks are goroutines already, so two
// fill the gaps of controls with one rank; from level 2 on, one keeps memory
// to that of a single run.
func (o *Options) width() int {
	if o.Level > 1 {
		return 1
	}
	return min(runtime.GOMAXPROCS(0), max(2, runtime.GOMAXPROCS(0)/4))
}

// execute makes all jobs' histories: several at a time, then one after another
// those that must be alone. It returns early only when ctx ends.
func (o *Options) execute(ctx context.Context, jobs []*job) error {
	o.room = semaphore.NewWeighted(o.Memory)
	var beside, alone []*job
	for _, j := range jobs {
		if j.alone {
			alone = append(alone, j)
		} else {
			beside = append(beside, j)
		}
	}
	o.each(ctx, beside, o.width())
	o.each(ctx, alone, 1)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// each makes the histories of jobs, width at a time, until ctx ends.
func (o *Options) each(ctx context.Context, jobs []*job, width int) {
	next := make(chan *job)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for j := range next {
				if o.Progress != nil {
					o.Progress(j.label)
				}
				j.history, j.err = o.one(ctx, j)
			}
		})
	}
	for _, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		next <- j
	}
	close(next)
	wg.Wait()
}

// admit refuses a training run that needs more memory than there is, and where
// others go on beside it waits for its share; release gives that back.
func (o *Options) admit(ctx context.Context, cfg *spec.Config) (release func(), err error) {
	release = func() {}
	if cfg == nil {
		return release, nil
	}
	need, err := dryrun.Fits(*cfg, o.Memory)
	if err != nil || o.room == nil {
		return release, err
	}
	return func() { o.room.Release(need) }, o.room.Acquire(ctx, need)
}

// one makes the history of a job. A panic of a run's own code is its error.
func (o *Options) one(ctx context.Context, j *job) (h *trace.History, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	parts := o.Parts
	if j.deadline > 0 && (parts.Deadline == 0 || parts.Deadline > j.deadline) {
		parts.Deadline = j.deadline
	}
	if j.run.Parts != nil {
		j.run.Parts(&parts)
	}
	release, err := o.admit(ctx, j.run.Config)
	if err != nil {
		return nil, err
	}
	defer release()
	if j.run.Do != nil {
		return j.run.Do(ctx, suite.Env{Parts: parts, Text: o.text})
	}
	text, err := o.text(j.run.Config.Text)
	if err != nil {
		return nil, err
	}
	out, err := launch.Local(ctx, *j.run.Config, text, parts)
	if out == nil {
		return nil, err
	}
	return out.History, err
}

// evidence is what a case's jobs recorded.
func (p *planned) evidence(oracle contract.Oracle) contract.Evidence {
	e := contract.Evidence{Case: p.cs.Name, Histories: map[contract.Role]*trace.History{}, Clauses: p.cs.Clauses, Oracle: oracle}
	for role, j := range p.jobs {
		if j.history != nil {
			e.Histories[role] = j.history
		}
	}
	return e
}

// failures says which runs of the case ended in an error.
func (p *planned) failures() []string {
	var out []string
	for _, role := range roles(p.cs) {
		if err := p.jobs[role].err; err != nil {
			out = append(out, fmt.Sprintf("case %s: the %s run ended early: %s", p.cs.Name, role, firstLine(err)))
		}
	}
	return out
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// caseTag is what a saved history's header says about its run.
func caseTag(id, name string, role contract.Role) string {
	return id + "/" + name + "/" + string(role)
}

// save writes the case's histories below dir.
func (p *planned) save(dir string) error {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\: `, r) {
			return '_'
		}
		return r
	}, p.contract.ID+"_"+p.cs.Name)
	for _, role := range roles(p.cs) {
		h := p.jobs[role].history
		if h == nil {
			continue
		}
		tagged := *h
		tagged.Header.Case = caseTag(p.contract.ID, p.cs.Name, role)
		if err := tagged.Save(filepath.Join(dir, name, string(role))); err != nil {
			return err
		}
	}
	return nil
}
