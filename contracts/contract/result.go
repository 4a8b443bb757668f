package contract

// Result is what one clause made of one case, or of all cases together.
type Result struct {
	Clause   *Clause
	Saw      int
	Expected int
	Findings []Finding // the first of each kind
	Total    int       // findings in all
	Cases    []string  // those with findings
	Doubts   []string  // why evidence does not suffice
	MaxRatio float64   // largest observed / bound, 0 where nothing was bounded
	// Panics are those of the clause's check, each with a doubt that says so.
	Panics []error
}

// Verdict is violated with any finding, inconclusive with doubts or less
// evidence than expected or none expected, else held.
func (r *Result) Verdict() Verdict {
	switch {
	case r.Total > 0:
		return Violated
	case len(r.Doubts) > 0 || r.Expected <= 0 || r.Saw < r.Expected:
		return Inconclusive
	}
	return Held
}

// Merge adds what the same clause made of another case.
func (r *Result) Merge(o Result) {
	r.Saw += o.Saw
	r.Expected += o.Expected
	r.Total += o.Total
	r.Findings = Join(r.Findings, o.Findings)
	r.Cases = append(r.Cases, o.Cases...)
	r.Doubts = append(r.Doubts, o.Doubts...)
	r.Panics = append(r.Panics, o.Panics...)
	r.MaxRatio = max(r.MaxRatio, o.MaxRatio)
}
