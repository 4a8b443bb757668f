//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// TestJoin: what stays with a device is said once, all else as often as it happens.
func TestJoin(t *testing.T) {
	on := func(device int, op string, r Result) error {
		return fmt.Errorf("x: %w", &Error{Op: op, Device: Info{Index: device}, Err: r})
	}
	illegal, misaligned := drv.Result(700), drv.Result(716)
	plain := errors.New("plain")
	a, b, c, d := on(0, "a", illegal), on(1, "b", illegal), on(0, "c", misaligned), on(0, "d", OutOfMemory)
	for _, test := range []struct {
		errs []error
		want []error
	}{
		{nil, nil},
		{[]error{nil, nil}, nil},
		{[]error{plain, nil, plain}, []error{plain, plain}},
		{[]error{a, on(0, "later", illegal), b, on(1, "later", illegal), c}, []error{a, b, c}},
		{[]error{d, on(0, "d", InvalidValue), d, d}, []error{d, on(0, "d", InvalidValue), d, d}},
		{[]error{a, Join(on(0, "later", illegal), plain, Join(b, d)), Join(on(1, "later", illegal))}, []error{a, plain, b, d}},
	} {
		got := Join(test.errs...)
		if want := errors.Join(test.want...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		for _, err := range test.want {
			var r Result
			if errors.As(err, &r) && !errors.Is(got, r) {
				t.Errorf("%v is not %v", got, r)
			}
		}
	}
}
