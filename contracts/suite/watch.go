package suite

import (
	"fmt"
	"time"
)

// Progress is how far the runs of an engine are.
type Progress struct {
	Ended, Of int
	// Slowest is the run that has gone on longest, since Since, and More how many go on
	// beside it; empty where none does.
	Slowest string
	Since   time.Time
	More    int
}

// Line says it in words.
func (p Progress) Line(now time.Time) string {
	s := fmt.Sprintf("%d of %d runs", p.Ended, p.Of)
	if p.Slowest == "" {
		return s
	}
	s += "; " + p.Slowest
	if d := now.Sub(p.Since); d >= time.Second {
		s += fmt.Sprintf(" for %s", d.Round(time.Second))
	}
	if p.More > 0 {
		s += fmt.Sprintf(", %d more", p.More)
	}
	return s
}

// watch knows which runs go on.
type watch struct {
	begun, ended, expected int
	running                map[*job]time.Time // those that have a name, with their begin
}

// expect announces runs, some of which may have been announced before.
func (e *Engine) expect(jobs []*job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range jobs {
		if !j.counted {
			j.counted = true
			e.watch.expected++
		}
	}
}

// begin takes the time of a run and tells of it; end does so again.
func (e *Engine) begin(j *job) (end func()) {
	begun := time.Now()
	e.tell(func(w *watch) {
		if j.name == (RunName{}) {
			return // a control, made beside the runs that were announced
		}
		if w.running == nil {
			w.running = map[*job]time.Time{}
		}
		w.running[j] = begun
		w.begun++
	})
	return func() {
		j.took = time.Since(begun)
		e.tell(func(w *watch) {
			if _, ok := w.running[j]; ok {
				delete(w.running, j)
				w.ended++
			}
		})
	}
}

// tell changes what is known of runs, and tells Progress.
func (e *Engine) tell(change func(w *watch)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.watch)
	if e.Progress != nil && e.watch.begun > 0 {
		e.Progress(e.watch.progress())
	}
}

func (w *watch) progress() Progress {
	p := Progress{Ended: w.ended, Of: max(w.expected, w.begun)}
	for j, begun := range w.running {
		if p.Slowest == "" || begun.Before(p.Since) || begun.Equal(p.Since) && j.name.String() < p.Slowest {
			p.Slowest, p.Since = j.name.String(), begun
		}
		p.More++
	}
	p.More = max(0, p.More-1)
	return p
}

// Clock adds up the times of runs, each once.
type Clock struct{ seen map[*job]bool }

// Took is the time of the runs of trials that it was not asked about before.
func (c *Clock) Took(trials ...*Trial) (sum time.Duration) {
	if c.seen == nil {
		c.seen = map[*job]bool{}
	}
	for _, j := range distinct(trials) {
		if !c.seen[j] {
			c.seen[j] = true
			sum += j.took
		}
	}
	return sum
}
