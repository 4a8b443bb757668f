package data

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// ordered is clause 1.
func ordered(s *source) {
	for x := range s.shares {
		var want, got = map[int][]int64{}, map[int][]int64{} // ids by worker
		var order []int
		for i, m := range x.micros {
			if _, seen := want[m.worker]; !seen {
				order = append(order, m.worker)
			}
			want[m.worker] = append(want[m.worker], ids(m.seqs)...)
			if e, ok := x.one(i); s.p.Found(ok) {
				got[e.Worker] = append(got[e.Worker], e.IDs...)
			}
		}
		if len(x.got) < len(x.micros) {
			continue // what a rank did not record is a matter of evidence
		}
		for _, w := range order {
			if !slices.Equal(got[w], want[w]) {
				s.p.At(x.rank, x.step).Report(got[w], want[w], "logical worker %d on rank %d takes other sequences than the text gives it", w, x.rank)
			}
		}
	}
}

func ids(seqs []independent.Sequence) []int64 {
	var out []int64
	for _, q := range seqs {
		out = append(out, q.ID)
	}
	return out
}

// cut is clause 2.
func cut(s *source) {
	for x := range s.shares {
		at := s.p.At(x.rank, x.step)
		for i, m := range x.micros {
			e, ok := x.one(i)
			if !s.p.Found(ok) {
				continue
			}
			if n := len(x.got[i]); n > 1 {
				at.Report(n, 1, "micro-batch %d of rank %d is there %d times", i, x.rank, n)
			}
			if e.Worker != m.worker {
				at.Report(e.Worker, m.worker, "micro-batch %d of rank %d is of another logical worker", i, x.rank)
			}
			if len(e.IDs) != len(m.seqs) {
				at.Report(len(e.IDs), len(m.seqs), "micro-batch %d of rank %d, of logical worker %d, has another number of sequences", i, x.rank, m.worker)
			}
		}
		for i := range x.got {
			if i >= len(x.micros) {
				at.Report(i, len(x.micros)-1, "rank %d has a micro-batch beyond those of the plan", x.rank)
			}
		}
	}
}

// filled is clause 3.
func filled(s *source) {
	for x := range s.shares {
		for i, m := range x.micros {
			e, ok := x.one(i)
			if !s.p.Found(ok && e.Digest != nil) {
				continue
			}
			want := digest(m.seqs)
			if e.Digest.A != want.A || e.Digest.B != want.B || e.Digest.NonFinite != 0 {
				s.p.At(x.rank, x.step).Report(e.Digest, want,
					"micro-batch %d of rank %d, of logical worker %d, has other tokens or targets than the text (sequences %v)", i, x.rank, m.worker, ids(m.seqs))
			}
		}
	}
}

// digest is that of a micro-batch's tokens and targets.
func digest(seqs []independent.Sequence) (d independent.Digest) {
	at := 0
	for _, q := range seqs {
		d.AddIntegers(trace.Tokens, at, q.Tokens)
		d.AddIntegers(trace.Targets, at, q.Targets)
		at += len(q.Tokens)
	}
	return d
}

// counted is clause 4.
func counted(s *source) {
	for x := range s.shares {
		at := s.p.At(x.rank, x.step)
		for i, m := range x.micros {
			var want int64
			for _, q := range m.seqs {
				want += int64(q.Valid)
			}
			e, ok := x.one(i)
			contract.Compare(at, ok, e.Count, want, "micro-batch %d of rank %d, of logical worker %d, counts other valid tokens than the text has", i, x.rank, m.worker)
		}
		found := 0
		for e := range s.In(x.step, x.rank, trace.KindTokens) {
			found++
			if e.Count != x.valid {
				at.Report(e.Count, x.valid, "rank %d counts other valid tokens in the global batch than the text has", x.rank)
			}
		}
		s.p.Count(1, found)
	}
}
