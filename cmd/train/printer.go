package main

import (
	"fmt"
	"io"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/train"
)

// printer shows the progress of a run: a plain line per step on stdout, and,
// where stderr is a terminal, one line below that is rewritten with speed and
// time left. Nothing that depends on time goes to a stdout that is a file.
type printer struct {
	out, status io.Writer // status is nil without a terminal
	optimizer   optim.Config
	counter     int // optimizer steps taken
	tokens      int64
	shown       bool
}

func newPrinter(stdout, stderr io.Writer, o optim.Config) *printer {
	p := &printer{out: stdout, optimizer: o}
	if cli.Terminal(stderr) {
		p.status = stderr
	}
	return p
}

// progress prints one step; the trainer calls it in the order of steps.
func (p *printer) progress(s train.Progress) {
	p.close()
	lr := p.optimizer.At(p.counter)
	line := fmt.Sprintf("step %d/%d loss %.4f norm %.4g lr %.4g tokens %d", s.Step+1, s.Steps, s.Loss, s.Norm, lr, s.Tokens)
	if s.Skipped {
		line += " skipped: the gradient norm is not finite"
	} else {
		p.counter++
	}
	fmt.Fprintln(p.out, line)
	p.tokens += s.Tokens
	if p.status != nil {
		p.shown = true
		fmt.Fprintf(p.status, "\r%.*s", cli.Width(p.status)-1, p.speed(s))
	}
}

// speed is the status line after a step.
func (p *printer) speed(s train.Progress) string {
	seconds := max(s.Elapsed.Seconds(), 1e-9)
	done := s.Step + 1
	left := time.Duration(float64(s.Elapsed) / float64(done) * float64(s.Steps-done)).Round(time.Second)
	return fmt.Sprintf("%.0f tokens/s, %s left", float64(p.tokens)/seconds, left)
}

// close removes the status line.
func (p *printer) close() {
	if p.shown {
		fmt.Fprint(p.status, "\r\x1b[K")
		p.shown = false
	}
}
