package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// clearLine empties the line of a terminal.
const clearLine = "\r\x1b[K"

// status is a line at the end of a terminal that says how far the runs are and
// names the slowest; every second its time grows.
type status struct {
	w    io.Writer // nil where there is no such terminal
	stop chan struct{}

	mu   sync.Mutex
	last suite.Progress
}

func newStatus(stderr io.Writer) *status {
	if !cli.Rewritable(stderr) {
		return &status{}
	}
	s := &status{w: stderr, stop: make(chan struct{})}
	go s.tick(time.NewTicker(time.Second))
	return s
}

// tick shows the line anew until close.
func (s *status) tick(t *time.Ticker) {
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.mu.Lock()
			s.show(now)
			s.mu.Unlock()
		case <-s.stop:
			s.stop <- struct{}{}
			return
		}
	}
}

// progress takes what the engine tells; nil where nobody would see it.
func (s *status) progress() func(suite.Progress) {
	if s.w == nil {
		return nil
	}
	return func(p suite.Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = p
		s.show(time.Now())
	}
}

func (s *status) show(now time.Time) {
	if s.last.Of > 0 {
		fmt.Fprintf(s.w, "%s%.*s", clearLine, cli.Width(s.w)-1, s.last.Line(now))
	}
}

// close removes the line; nothing is shown after it.
func (s *status) close() {
	if s.w == nil {
		return
	}
	s.stop <- struct{}{}
	<-s.stop
	fmt.Fprint(s.w, clearLine)
}
