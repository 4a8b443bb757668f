package data

import (
	"errors"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// source is a run with its text, read a second time.
type source struct {
	*evidence.Run
	p       *contract.Pass
	corpus  *independent.Corpus
	workers int // logical workers
}

// contents is the clause about the bytes of the text.
const contents = "C-DATA-001.3"

// opened is a check of the test run against the text it names. Where either is
// not to be had the pass doubts; so it does where a text that a run was given some
// time ago is another now. A run made just now was given other bytes than there
// are, which the clause about those reports.
func opened(check func(*source)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		c := r.Config
		if n := c.Sequences * c.Model.SeqLen; n > maxTokens {
			p.Doubt("a step of %d sequences of %d tokens: of at most %d tokens can the text be read again", c.Sequences, c.Model.SeqLen, maxTokens)
			return
		}
		text, err := p.Text(c)
		var other *contract.OtherText
		switch {
		case errors.As(err, &other) && p.Fresh && p.Clause.ID == contents:
			p.At(-1, 0).Report(other.Given, other.SHA256, "the run was given other bytes than text %s has, which are %d", other.Name, other.Bytes)
			return
		case err != nil:
			p.Doubt("%v", err)
			return
		}
		s := &source{Run: r, p: p, workers: workers(c.Model.Groups.Data, c.Plan.DP),
			corpus: &independent.Corpus{SeqLen: c.Model.SeqLen, PerStep: c.Sequences, Pad: c.LastStep == "pad", Blank: c.Blank}}
		if err := s.corpus.Read(text, c.Model.Vocab); err != nil {
			p.Doubt("%v", err)
			return
		}
		check(s)
	})
}

// maxTokens bounds a step that is read again: padded sequences are as long as the
// header says, whatever the text holds.
const maxTokens = 1 << 25

// workers is the number of logical workers: the canonical groups, where dp
// divides them, else one a rank.
func workers(groups, dp int) int {
	if dp = max(1, dp); groups%dp != 0 {
		return dp
	}
	return groups
}

// share is what the text gives one rank in one step.
type share struct {
	rank, step int
	micros     []micro
	valid      int64 // of the global batch
	// got are the data events of each micro-batch, in their order.
	got map[int][]trace.Event
}

// micro is a micro-batch as the text gives it.
type micro struct {
	worker int
	seqs   []independent.Sequence
}

// shares yields every rank's share of every step.
func (s *source) shares(yield func(share) bool) {
	got := make([]map[int]map[int][]trace.Event, s.Header.World) // by rank, step, micro-batch
	for rank := range got {
		got[rank] = map[int]map[int][]trace.Event{}
		for e := range s.Events(rank, trace.KindData) {
			if got[rank][e.Step] == nil {
				got[rank][e.Step] = map[int][]trace.Event{}
			}
			got[rank][e.Step][e.Micro] = append(got[rank][e.Step][e.Micro], e)
		}
	}
	for step := s.First; step < s.Steps; step++ {
		all := s.corpus.Step(step)
		var valid int64
		for _, q := range all {
			valid += int64(q.Valid)
		}
		for rank := range got {
			x := share{rank: rank, step: step, micros: s.deal(all, s.At(rank).DP), valid: valid, got: got[rank][step]}
			if !yield(x) {
				return
			}
		}
	}
}

// deal gives the micro-batches of a data-parallel rank.
func (s *source) deal(all []independent.Sequence, dp int) (out []micro) {
	plan := s.Config.Plan
	mine := independent.RankWorkers(dp, max(1, plan.DP), s.workers, plan.Zero >= 2)
	for _, w := range mine {
		hand := independent.Dealt(len(all), w, s.workers)
		for _, n := range independent.Cut(len(hand), plan.MicroBatches/len(mine)) {
			m := micro{worker: w}
			for _, at := range hand[:n] {
				m.seqs = append(m.seqs, all[at])
			}
			hand, out = hand[n:], append(out, m)
		}
	}
	return out
}

// one is the only event of a micro-batch; ok is false where there is none.
func (x share) one(i int) (e trace.Event, ok bool) {
	if len(x.got[i]) == 0 {
		return e, false
	}
	return x.got[i][0], true
}
