//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Result is what the driver answered, other than success; its Error is what that means.
type Result = drv.Result

// The results that callers tell from others, by errors.Is.
const (
	OutOfMemory  = drv.OutOfMemory
	InvalidValue = drv.InvalidValue
	NotFound     = drv.NotFound
	NotReady     = drv.NotReady
	NotSupported = drv.NotSupported
)

// Error is an operation that failed on a device.
type Error struct {
	Op     string // "cuMemAlloc of 4096 bytes"
	Device Info
	Log    string // of the PTX compiler, where that refused; or what the simulator found
	Err    error  // a Result, or what was wrong with the operation's arguments
}

// Error says operation, device and cause.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s on %s: %v", e.Op, e.Device, e.Err)
	if e.Log != "" {
		s += ":\n" + e.Log
	}
	return s
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail makes an Error of err, unless that is nil. The operation is only written then.
func (d *Device) fail(err error, op string, args ...any) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: fmt.Sprintf(op, args...), Device: d.Info, Err: resultOf(err)}
	if _, ok := e.Err.(Result); ok && d.Simulated {
		found := Findings()
		e.Log = strings.Join(found[:min(len(found), mostFindings)], "\n")
	}
	return e
}

// joined are several errors.
type joined []error

// Error has each in a line of its own.
func (j joined) Error() string { return errors.Join(j...).Error() }

// Unwrap gives them.
func (j joined) Unwrap() []error { return j }

// Join is errors.Join for what is done although something failed before, as to close all
// there is: a fault that stays with a device is what every call answers from then on, and
// of those only the first is kept.
func Join(errs ...error) error {
	type fault struct {
		device int
		result Result
	}
	var out joined
	seen := map[fault]bool{}
	for _, err := range errs {
		parts := []error{err}
		if j, ok := err.(joined); ok {
			parts = j
		}
		for _, err := range parts {
			var e *Error
			var r Result
			if errors.As(err, &e) && errors.As(e.Err, &r) && r.Lasts() {
				f := fault{e.Device.Index, r}
				if seen[f] {
					continue
				}
				seen[f] = true
			}
			if err != nil {
				out = append(out, err)
			}
		}
	}
	if out == nil {
		return nil
	}
	return out
}

// mostFindings bounds the findings in an error. The first tell most.
const mostFindings = 4

// Findings are what kernels and the host did wrong on simulated devices of this process so
// far, each in a line: a driver would not have said. Real devices have none.
func Findings() []string {
	return strings.FieldsFunc(drv.Findings(), func(r rune) bool { return r == '\n' })
}

// resultOf makes a Result of an error of gorgonia.org/cu, whose type is not exported: its
// values are the driver's. Another error stays as it is.
func resultOf(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if r, ok := e.(Result); ok {
			return r
		}
		if t := reflect.TypeOf(e); t.Kind() == reflect.Int && t.PkgPath() == "gorgonia.org/cu" {
			return Result(reflect.ValueOf(e).Int())
		}
	}
	return err
}
