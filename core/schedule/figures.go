package schedule

import "fmt"

// IdleShare is the ideal share of all stages' time without a pass, for equal
// stages and transfers that take no time: (P-1)/(V*M+P-1), with V = 1 for OneF1B
// and GPipe. It does not depend on the costs of the passes. (Narayanan et al.,
// arXiv 2104.04473, give the same idle time relative to the ideal: Overhead.)
// All counts are at least 1.
func IdleShare(p, v, m int) float64 {
	return float64(p-1) / float64(int64(v)*int64(m)+int64(p)-1)
}

// Overhead is the idle time over the time of a step that never idles:
// (P-1)/(V*M). It may exceed 1; it is not a share of the time.
func Overhead(p, v, m int) float64 {
	return float64(p-1) / float64(int64(v)*int64(m))
}

// Figures are what formulas say of a schedule.
type Figures struct {
	IdleShare, Overhead float64
	// Exact is false where the formulas for idle time are a lower bound only:
	// for Interleaved where P does not divide M.
	Exact bool
	// PeakLive is, by stage, the most live micro-batches (of any chunk).
	PeakLive []int
}

// Figures gives the formulas for a schedule that OneF1B, GPipe or Interleaved
// made; for others PeakLive is nil. Peak live micro-batches of stage s: OneF1B
// min(P-s, M), GPipe M, Interleaved min(V*M, 2(P-s-1)+(V-1)P+1), which is a
// bound where P does not divide M.
func (s Schedule) Figures() Figures {
	p, v, m := len(s.Stages), s.Chunks, s.Micros
	f := Figures{IdleShare: IdleShare(p, v, m), Overhead: Overhead(p, v, m), Exact: v == 1 || m%p == 0}
	for i := range p {
		switch {
		case s.Name == NameGPipe:
			f.PeakLive = append(f.PeakLive, m)
		case v == 1 && (s.Name == NameOneF1B || s.Name == NameInterleaved):
			f.PeakLive = append(f.PeakLive, min(p-i, m))
		case s.Name == NameInterleaved:
			f.PeakLive = append(f.PeakLive, min(v*m, interleavedWarmup(i, p, v)+1))
		}
	}
	return f
}

// Warnings says what a user should know of a schedule that is correct.
func (s Schedule) Warnings() []string {
	p := len(s.Stages)
	if s.Micros >= p {
		return nil
	}
	return []string{fmt.Sprintf("%d micro-batches do not fill %d stages", s.Micros, p)}
}
