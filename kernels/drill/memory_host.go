package drill

import (
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// hostElements: what Host gives, for views at every place of a buffer, are the
// elements themselves: as many as the tensor has, equal to what is read, written
// by kernels and seen by them. A backend may give none; of a strided tensor it
// must not.
func hostElements(b kernels.Backend) error {
	const n = 24
	buf, err := b.Alloc(n)
	if err != nil {
		return err
	}
	defer b.Free(buf)
	x := kernels.Flat(buf)
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i) - 7.25
	}
	b.Write(x, want)
	if strided, ok := b.Host(x.As(4, 6).ColRange(1, 3)); ok {
		return fmt.Errorf("method Host gives %d elements of a strided tensor", len(strided))
	}
	for _, t := range []kernels.Tensor{x, x.Range(0, 1), x.Range(5, 11), x.Range(n-1, n), x.Range(3, 3), x.As(4, 6).RowRange(1, 3), x.As(4, 6).RowRange(2, 3).ColRange(1, 4)} {
		if err := hostView(b, x, t, want); err != nil {
			return fmt.Errorf("elements of %s: %w", t, err)
		}
	}
	return nil
}

// hostView is hostElements for one view t of the whole x, whose elements are
// want.
func hostView(b kernels.Backend, x, t kernels.Tensor, want []float32) error {
	host, ok := b.Host(t)
	if !ok {
		return nil
	}
	if len(host) != t.Len() {
		return fmt.Errorf("%d elements", len(host))
	}
	got := make([]float32, len(want))
	for i := range host {
		want[t.Off+i] = float32(100*want[t.Off+i]) + 1 // a new value, small integers and a quarter: exact
		host[i] = want[t.Off+i]
	}
	if err := errors.Join(b.Sync(), b.Read(got, x)); err != nil {
		return err
	}
	if i := firstDifference(got, want); i >= 0 {
		return fmt.Errorf("after writing through it, element %d of the buffer reads %v, want %v", i, got[i], want[i])
	}
	for i := range host {
		want[t.Off+i] = float32(i) + 0.5
	}
	b.Write(t, want[t.Off:t.Off+t.Len()])
	if err := b.Sync(); err != nil {
		return err
	}
	if i := firstDifference(host, want[t.Off:t.Off+t.Len()]); i >= 0 {
		return fmt.Errorf("element %d is %v after %v was written to the tensor", i, host[i], want[t.Off+i])
	}
	return nil
}
