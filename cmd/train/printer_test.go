package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/train"
)

func TestSkippedStepsDoNotAdvanceTheSchedule(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out, &out, optim.Config{LR: 1, Warmup: 4})
	for step, skipped := range []bool{false, true, false} {
		p.progress(train.Progress{Step: step, Steps: 3, Loss: 5, Norm: 1, Tokens: 10, Skipped: skipped})
	}
	want := "step 1/3 loss 5.0000 norm 1 lr 0.25 tokens 10\n" +
		"step 2/3 loss 5.0000 norm 1 lr 0.5 tokens 10 skipped: the gradient norm is not finite\n" +
		"step 3/3 loss 5.0000 norm 1 lr 0.5 tokens 10\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestSpeedAndTimeLeft(t *testing.T) {
	p := &printer{tokens: 1000}
	got := p.speed(train.Progress{Step: 1, Steps: 10, Elapsed: 4 * time.Second})
	if got != "250 tokens/s, 16s left" {
		t.Errorf("status %q", got)
	}
	if got := p.speed(train.Progress{Step: 0, Steps: 1}); !strings.HasSuffix(got, " 0s left") {
		t.Errorf("no time has passed: %q", got)
	}
}

func TestStatusLineStaysApartFromResults(t *testing.T) {
	var out, status bytes.Buffer
	p := &printer{out: &out, status: &status, optimizer: optim.Config{LR: 1}}
	p.progress(train.Progress{Step: 0, Steps: 2, Tokens: 5, Elapsed: time.Second})
	p.progress(train.Progress{Step: 1, Steps: 2, Tokens: 5, Elapsed: 2 * time.Second})
	p.close()
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Errorf("results hold control characters: %q", out.String())
	}
	if got := status.String(); strings.Count(got, "tokens/s") != 2 || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("status %q: want two lines, the last one cleared", got)
	}
}
