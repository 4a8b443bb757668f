package main

import (
	"bytes"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

func TestStepsArePrinted(t *testing.T) {
	steps := []train.Progress{
		{Step: 0, Steps: 3, Loss: 5, Norm: 1, LR: 0.25, Tokens: 10, Elapsed: time.Second},
		{Step: 1, Steps: 3, Loss: math.NaN(), Norm: math.Inf(1), LR: 0.5, Tokens: 10, Skipped: true, Elapsed: 2 * time.Second},
		{Step: 2, Steps: 3, Loss: 5, Norm: 1, Tokens: 10, Elapsed: 3 * time.Second},
	}
	const text = "step 1/3 loss 5.0000 norm 1 lr 0.25 tokens 10\n" +
		"step 2/3 loss NaN norm +Inf lr 0.5 tokens 10 skipped: the gradient norm is not finite\n" +
		"step 3/3 loss 5.0000 norm 1 lr 0 tokens 10\n"
	const lines = `{"event":"step","step":1,"steps":3,"loss":5,"norm":1,"lr":0.25,"tokens":10}
{"event":"step","step":2,"steps":3,"loss":"NaN","norm":"+Inf","lr":0.5,"tokens":10,"skipped":true}
{"event":"step","step":3,"steps":3,"loss":5,"norm":1,"lr":0,"tokens":10}
`
	for _, c := range []struct{ json, simulated bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		var out, log bytes.Buffer
		p := &printer{out: &out, log: &log, json: c.json, simulated: c.simulated}
		for _, s := range steps {
			p.progress(s)
		}
		text, lines, mark := text, lines, ""
		if c.simulated { // each line says so
			mark = `,"simulated":true`
			text = strings.ReplaceAll(text, "\n", " (simulated)\n")
		}
		if want := map[bool]string{false: text, true: strings.ReplaceAll(lines, "}", mark+"}")}[c.json]; out.String() != want {
			t.Errorf("%+v: got\n%swant\n%s", c, out.String(), want)
		}
		timed := regexp.MustCompile(`(?m)}$`).ReplaceAllString(lines, `,"seconds":T`+mark+`}`)
		for i := range 3 {
			timed = strings.Replace(timed, "T", strconv.Itoa(i+1), 1)
		}
		if log.String() != timed { // the log alone has the time
			t.Errorf("log\n%swant\n%s", log.String(), timed)
		}
	}
}

func TestQuietPrintsNothing(t *testing.T) {
	var log bytes.Buffer
	p := &printer{log: &log}
	p.progress(train.Progress{Steps: 1, Tokens: 5})
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log %q", log.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestALogThatCannotBeWrittenIsAnError(t *testing.T) {
	p := &printer{log: full{}}
	p.progress(train.Progress{Steps: 2})
	p.progress(train.Progress{Step: 1, Steps: 2})
	if p.err == nil || !strings.Contains(p.err.Error(), "no space left") {
		t.Errorf("error %v", p.err)
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
	p.simulated = true
	if got := p.speed(train.Progress{Step: 0, Steps: 1}); !strings.HasSuffix(got, " 0s left (simulated)") {
		t.Errorf("on a simulated device: %q", got)
	}
	p.simulated = false
	p.first = 8 // a run that goes on took two steps in that time
	if got := p.speed(train.Progress{Step: 9, Steps: 20, Elapsed: 4 * time.Second}); got != "250 tokens/s, 20s left" {
		t.Errorf("after a resumption: %q", got)
	}
}

func TestStatusLineStaysApartFromResults(t *testing.T) {
	var out, status bytes.Buffer
	p := &printer{out: &out, status: &status}
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

// TestWaits: how often the second step waits for its device is said at the end, of a
// simulated one with the mark, in both forms; of one step, or without a device, nothing.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		backend, format, want string
		steps                 int
	}{
		{"cuda-sm_90", "text", "waits 56 for the device in the second step\n", 3},
		{"cuda-sm_90-simulated", "text", "waits 56 for the device in the second step (simulated)\n", 2},
		{"cuda-sm_90-simulated", "json", `{"event":"end","simulated":true,"waits":56}` + "\n", 2},
		{"cuda-sm_90", "text", "", 1},
		{"cpu", "text", "", 0},
	} {
		now := uint64(1000)
		p := &printer{}
		if c.steps > 0 {
			p.waits = func() uint64 { return now }
		}
		for i := range c.steps {
			p.progress(train.Progress{Step: i, Steps: c.steps})
			if now += 56; i > 0 {
				now += 400 // the last one does more
			}
		}
		var out bytes.Buffer
		o := options{format: c.format}
		if code, err := o.finish(&trace.History{Header: trace.Header{Backend: c.backend}}, 0, p, &out); code != 0 || err != nil || out.String() != c.want {
			t.Errorf("%+v: %d, %v, %q", c, code, err, out.String())
		}
	}
}
