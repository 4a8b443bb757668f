package independent

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// threads are goroutines. A panic of one is that of Wait, so that whoever asked can
// recover it.
type threads struct {
	wait  sync.WaitGroup
	once  sync.Once
	panic *panicked
}

// panicked is a panic of another goroutine, with the functions that it came
// through.
type panicked struct {
	value  any
	frames []string
}

// PanicFrames is the panic's value and the functions, the innermost first.
func (p *panicked) PanicFrames() (value any, frames []string) { return p.value, p.frames }

// frames are the functions of the panic that is being recovered.
func frames() (out []string) {
	var pc [32]uintptr
	walk := runtime.CallersFrames(pc[:runtime.Callers(3, pc[:])])
	for {
		f, more := walk.Next()
		if !strings.HasPrefix(f.Function, "runtime.") && len(out) < 6 {
			out = append(out, fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line))
		}
		if !more {
			return out
		}
	}
}

// Go runs f on a goroutine.
func (t *threads) Go(f func()) {
	t.wait.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				at := frames()
				t.once.Do(func() { t.panic = &panicked{p, at} })
			}
		}()
		f()
	})
}

// Wait returns when all have ended.
func (t *threads) Wait() {
	t.wait.Wait()
	if t.panic != nil {
		panic(t.panic)
	}
}
