package suite

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// rows changes every sequence that ranks are given. The change has a copy.
func rows(change func(*data.Sequence)) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		seqs, ids := s.Do()
		seqs = slices.Clone(seqs)
		for i := range seqs {
			q := &seqs[i]
			q.Tokens, q.Targets = slices.Clone(q.Tokens), slices.Clone(q.Targets)
			change(q)
		}
		return seqs, ids
	})
}

// unshifted makes every token its own target.
func unshifted(q *data.Sequence) {
	for i, y := range q.Targets {
		if y != data.Ignore {
			q.Targets[i] = q.Tokens[i]
		}
	}
}

// seven keeps the lower seven bits of every token.
func seven(q *data.Sequence) {
	for i := range q.Tokens {
		q.Tokens[i] &= 0x7f
		if q.Targets[i] != data.Ignore {
			q.Targets[i] &= 0x7f
		}
	}
}

// counts makes padding a prediction of token 0, in every sequence that predicts
// something.
func counts(q *data.Sequence) {
	if q.Valid == 0 {
		return
	}
	for i, y := range q.Targets {
		if y == data.Ignore {
			q.Targets[i], q.Valid = 0, q.Valid+1
		}
	}
}

// heard gives a sequence that is to be ignored its own tokens as targets.
func heard(q *data.Sequence) {
	if q.Valid > 0 {
		return
	}
	for i := 0; i+1 < len(q.Tokens) && q.Tokens[i+1] != 0; i++ {
		q.Targets[i], q.Valid = q.Tokens[i+1], q.Valid+1
	}
}

// late begins every epoch but the first one step late.
func late(epoch int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Step += s.Step / epoch
		return s.Do()
	})
}

// lateFrom begins every epoch of so many steps from the n-th (from 0) on one step late.
func lateFrom(n, epoch int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Step += max(s.Step/epoch-n+1, 0)
		return s.Do()
	})
}

// narrowed counts the sequences before a step of n in an integer that wraps.
func narrowed(n int, wrap func(sequences int) int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Step = wrap(s.Step*n) / n
		return s.Do()
	})
}

// dropPadded leaves out the last step of every epoch of so many.
func dropPadded(epoch int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		full := epoch - 1
		s.Step = s.Step/full*epoch + s.Step%full
		return s.Do()
	})
}

// neighbour gives every logical worker the next one's sequences.
func neighbour() fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Worker = (s.Worker + 1) % s.Workers
		return s.Do()
	})
}

// rotated lets every worker take its first sequence last.
func rotated() fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		seqs, ids := s.Do()
		if len(seqs) < 2 {
			return seqs, ids
		}
		return append(slices.Clone(seqs[1:]), seqs[0]), append(slices.Clone(ids[1:]), ids[0])
	})
}

// valid lets sequences claim a valid token more than they have.
func valid(q *data.Sequence) {
	if q.Valid > 0 {
		q.Valid++
	}
}

// undervalued lets sequences claim a valid token fewer than they have.
func undervalued(q *data.Sequence) {
	if q.Valid > 0 {
		q.Valid--
	}
}

// loaded changes the text that the run of a case is given.
func loaded(change func([]byte) []byte) func(*suite.Case) {
	return func(c *suite.Case) {
		r := c.Runs[contract.Test]
		cfg := *r.Config
		r.Key, r.Do = "", func(ctx context.Context, env suite.Env) (*trace.History, error) {
			open := env.Text
			env.Text = func(name string) (data.Text, error) {
				t, err := open(name)
				t.Bytes = change(slices.Clone(t.Bytes))
				return t, err
			}
			return env.Train(ctx, cfg)
		}
		c.Runs[contract.Test] = r
	}
}
