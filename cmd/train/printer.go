package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// printer shows the progress of a run: a line per step on stdout, as text or JSON,
// another in a log, and, where stderr is a terminal, one line below that is
// rewritten with speed and time left. Nothing that depends on time goes to stdout,
// which may be a file.
type printer struct {
	out       io.Writer // nil is quiet
	json      bool
	log       io.Writer // nil without a log
	status    io.Writer // nil without a terminal
	first     int       // step that the run begins with
	simulated bool      // devices are, or those were whose state the run goes on from
	tokens    int64
	shown     bool
	err       error // the first of writing the log

	waits         func() uint64 // for the device of the rank that reports; nil where there is none
	steps         int           // that were waited for
	since, inStep uint64        // waits at the end of the last step, and in the second
}

// wait counts the waits of a step that has ended.
func (p *printer) wait() {
	if p.waits != nil {
		now := p.waits()
		if p.steps++; p.steps == 2 {
			p.inStep = now - p.since
		}
		p.since = now
	}
}

// waited is how often the second step waited for the device: the first, and where a run
// records what it did the last, have more to do than others.
func (p *printer) waited() (n uint64, ok bool) { return p.inStep, p.steps > 1 }

// step is a line of JSON about a step; Seconds since the begin of the run stand in
// the log only.
type step struct {
	Event   string      `json:"event"` // "step"
	Step    int         `json:"step"`  // from 1
	Steps   int         `json:"steps"`
	Loss    trace.Float `json:"loss"`
	Norm    trace.Float `json:"norm"`
	LR      float64     `json:"lr"`
	Tokens  int64       `json:"tokens"`
	Skipped bool        `json:"skipped,omitempty"` // the norm is not finite
	Seconds float64     `json:"seconds,omitempty"`
	// Simulated says that simulated devices have computed it.
	Simulated bool `json:"simulated,omitempty"`
}

// progress prints one step; the trainer calls it in the order of steps.
func (p *printer) progress(s train.Progress) {
	p.close()
	p.wait()
	line := step{"step", s.Step + 1, s.Steps, trace.Float(s.Loss), trace.Float(s.Norm), s.LR, s.Tokens, s.Skipped, 0, p.simulated}
	switch {
	case p.out == nil:
	case p.json:
		writeJSON(p.out, line)
	default:
		text := fmt.Sprintf("step %d/%d loss %.4f norm %.4g lr %.4g tokens %d", s.Step+1, s.Steps, s.Loss, s.Norm, s.LR, s.Tokens)
		if s.Skipped {
			text += " skipped: the gradient norm is not finite"
		}
		fmt.Fprintln(p.out, text+cli.EndMark(p.simulated))
	}
	if line.Seconds = s.Elapsed.Seconds(); p.log != nil && p.err == nil {
		p.err = writeJSON(p.log, line)
	}
	p.tokens += s.Tokens
	if p.status != nil {
		p.shown = true
		fmt.Fprintf(p.status, "\r%.*s", cli.Width(p.status)-1, p.speed(s))
	}
}

// writeJSON writes one line.
func writeJSON(w io.Writer, x any) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// speed is the status line after a step.
func (p *printer) speed(s train.Progress) string {
	seconds := max(s.Elapsed.Seconds(), 1e-9)
	done := s.Step + 1 - p.first
	left := time.Duration(float64(s.Elapsed) / float64(done) * float64(s.Steps-s.Step-1)).Round(time.Second)
	return fmt.Sprintf("%.0f tokens/s, %s left%s", float64(p.tokens)/seconds, left, cli.EndMark(p.simulated))
}

// close removes the status line.
func (p *printer) close() {
	if p.shown {
		fmt.Fprint(p.status, "\r\x1b[K")
		p.shown = false
	}
}
