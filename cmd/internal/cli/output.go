package cli

import (
	"fmt"
	"io"
	"sync"
)

// Output is a command's stdout. It remembers the first error of writing to it, so
// that a result which nobody can read does not look like one.
type Output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// NewOutput is an Output to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Exit is the exit code of a command that ended with code: CannotRun where its
// output was lost, unless something is violated or was said to be wrong before.
func (o *Output) Exit(name string, code int, stderr io.Writer) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || code == CannotRun || code == Usage {
		return code
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, o.err)
	return unread(code)
}

// unread is the exit code of a command that ended with code and whose output was lost.
func unread(code int) int {
	if code == Violated || code == Usage {
		return code
	}
	return CannotRun
}

// Ending is what Exit will make of a code, as far as it can be known now: w is the
// command's stdout.
func Ending(w io.Writer, code int) int {
	if lost(w) {
		return unread(code)
	}
	return code
}

// lost reports whether w is an Output that something could not be written to.
func lost(w io.Writer) bool {
	o, ok := w.(*Output)
	if !ok {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// under is the writer beneath Outputs.
func under(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return under(o.w)
	}
	return w
}
