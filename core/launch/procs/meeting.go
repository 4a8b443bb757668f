//go:build unix

package procs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// The processes that a launcher has started on one host meet by a file that only their
// user can write and read: it says where the driver listens, and its token.

// place is the file of a job.
func (f *Found) place() string {
	sum := sha256.Sum256([]byte(f.Source + " " + f.Job))
	return filepath.Join(os.TempDir(), fmt.Sprintf("lockstep-%d-%s.json", os.Getuid(), hex.EncodeToString(sum[:8])))
}

// announce makes the file, in the place of one that another run has left; gone removes
// it.
func (f *Found) announce(s Seat) (gone func(), err error) {
	said, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.place()), ".lockstep-*") // for its user alone
	if err != nil {
		return nil, err
	}
	_, err = tmp.Write(said)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), f.place())
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(tmp.Name()))
	}
	return func() { _ = os.Remove(f.place()) }, nil // one that is left is replaced
}

// read is what the file says; an error that is fs.ErrNotExist where there is none yet.
func (f *Found) read() (s Seat, err error) {
	info, err := os.Lstat(f.place())
	if err != nil {
		return s, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || !ok || int(owner.Uid) != os.Getuid() {
		return s, fmt.Errorf("%s: must be a file that its user alone, who is this process's, can read", f.place())
	}
	b, err := os.ReadFile(f.place())
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if s.Agents != f.Agents && err == nil {
		err = fmt.Errorf("%s: is of %d agents, %s", f.place(), s.Agents, f)
	}
	s.Agent = f.Agent
	return s, err
}

// Serve takes this process's seat in the team of the first of those that the launcher
// has started, and does what that asks for: see Seat.Serve.
func (f *Found) Serve(ctx context.Context, identity string, work Work) (int, error) {
	patience := within(f.Deadline, MaxJoin)
	late := time.Now().Add(patience)
	for {
		s, err := f.read()
		if err == nil {
			var code int
			if code, err = s.Serve(ctx, identity, work); err == nil || errors.As(err, new(*inSeat)) || errors.As(err, new(*wire.Refusal)) {
				return code, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if time.Now().After(late) {
			return 0, fmt.Errorf("%v: did not reach its driver within %v: %w", f, patience, err)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond): // the file may be that of a run before
		}
	}
}

// inSeat is what ends an agent that had come.
type inSeat struct{ err error }

func (e *inSeat) Error() string { return e.err.Error() }
func (e *inSeat) Unwrap() error { return e.err }
