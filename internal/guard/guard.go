// Package guard turns a panic into an error that says where it was. A goroutine
// whose panic nobody recovers ends the process, and with it what all others found.
//
// What Go itself ends the process for, no goroutine can recover: concurrent writes
// to a map, a stack that overflows, memory that is not to be had, a deadlock of all
// goroutines, faults in memory that is not Go's.
package guard

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Panic is a panic that was recovered.
type Panic struct {
	Value  any
	Frames []string // the functions that it came through, the innermost first
}

// most bounds the frames that are kept: who called the rank's step is known.
const most = 6

// Error is the panic in one line.
func (p *Panic) Error() string {
	s := "panic: " + strings.Join(strings.Fields(fmt.Sprint(p.Value)), " ")
	if len(p.Frames) > 0 {
		s += ", in " + strings.Join(p.Frames, " < ")
	}
	return s
}

// Unwrap is the value, where that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Of is what recover gave. A panic that was passed on from another goroutine keeps
// the frames of that one.
func Of(value any) *Panic {
	switch p := value.(type) {
	case *Panic:
		return p
	case interface{ PanicFrames() (any, []string) }:
		v, frames := p.PanicFrames()
		return &Panic{v, frames}
	}
	return &Panic{value, frames()}
}

// Into makes a panic of the function that defers it the function's error.
func Into(err *error) {
	if p := recover(); p != nil {
		*err = Of(p)
	}
}

// Do is f, with a panic as its error.
func Do(f func() error) (err error) {
	defer Into(&err)
	return f()
}

// frames are the functions of the panic that is being recovered, the innermost
// first: those after the runtime's own.
func frames() []string {
	var pc [64]uintptr
	walk := runtime.CallersFrames(pc[:runtime.Callers(2, pc[:])])
	var out []string
	began := false
	for {
		f, more := walk.Next()
		switch {
		case f.Function == "runtime.gopanic" || f.Function == "runtime.sigpanic":
			began, out = true, out[:0]
		case began && !strings.HasPrefix(f.Function, "runtime."):
			if len(out) < most {
				out = append(out, fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line))
			}
		}
		if !more {
			return out
		}
	}
}

// Group runs goroutines. A panic of one is that of Wait: it reaches whoever asked
// for the work.
type Group struct {
	wait  sync.WaitGroup
	once  sync.Once
	first *Panic
}

// Go runs f on a goroutine.
func (g *Group) Go(f func()) {
	g.wait.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				caught := Of(p)
				g.once.Do(func() { g.first = caught })
			}
		}()
		f()
	})
}

// Wait returns when all have ended, and panics if one did.
func (g *Group) Wait() {
	g.wait.Wait()
	if g.first != nil {
		panic(g.first)
	}
}
