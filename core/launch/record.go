package launch

import (
	"context"
	"errors"
	"sync"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// files are those that the logs of a run are written to while it goes on.
type files struct {
	logs []*trace.Log
	end  context.CancelCauseFunc

	mu    sync.Mutex
	first *Failure // of writing them
}

// record begins to write the logs below dir, where that is not empty. The context
// ends when that fails, and with close.
func record(ctx context.Context, dir string, logs []*trace.Log) (context.Context, *files, error) {
	f := &files{logs: logs}
	ctx, f.end = context.WithCancelCause(ctx)
	if dir == "" {
		return ctx, f, nil
	}
	for _, l := range logs {
		r := l.Header.Rank
		if err := l.Stream(dir, func(err error) { f.failed(r, err) }); err != nil {
			return nil, nil, f.close(&Failure{r, err})
		}
	}
	return ctx, f, nil
}

// failed ends the run: its history has no use without the rest.
func (f *files) failed(rank int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = &Failure{rank, err}
		f.end(f.first)
	}
}

// close completes the files, and adds the first failure to write them to the error
// of the run, which may be a consequence of it.
func (f *files) close(err error) error {
	for _, l := range f.logs {
		if e := l.Close(); e != nil {
			f.failed(l.Header.Rank, e)
		}
	}
	f.end(nil)
	switch {
	case f.first == nil:
		return err
	case err == nil || errors.Is(err, f.first) || errors.Is(err, f.first.Err):
		return f.first
	}
	return errors.Join(err, f.first)
}
