package kern

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/drill"
)

// named is the name of a case.
type named struct{ kernel, name string }

// drilled is what one rank of a drill recorded, by case.
type drilled struct {
	rank   int
	header trace.Header // the rank's
	Spec
	events map[named]trace.Event
	twice  []trace.Event // second events of a case
}

// read indexes the history of the test run, rank by rank: each has drilled the backend of
// its own process and device. Where that is impossible the pass doubts and there is none.
// Ranks without a history make the pass doubt too.
func read(p *contract.Pass) (all []*drilled) {
	h, ok := p.History(contract.Test)
	if !ok {
		return nil
	}
	s, err := specOf(h)
	if err != nil {
		p.Doubt("%v", err)
		return nil
	}
	for _, rank := range slices.Sorted(maps.Keys(h.Ranks)) {
		d := &drilled{rank: rank, header: h.Of(rank), Spec: s, events: map[named]trace.Event{}}
		for _, e := range h.Ranks[rank] {
			if e.Kind != trace.KindKernel {
				continue
			}
			k := named{e.Op, e.Unit}
			if _, seen := d.events[k]; seen {
				d.twice = append(d.twice, e)
				continue
			}
			d.events[k] = e
		}
		all = append(all, d)
	}
	return all
}

// of is the event of a case; ok where all was compared, or what was is wrong.
func (d *drilled) of(c *drill.Case) (e trace.Event, ok bool) {
	e, ok = d.events[named{c.Kernel, c.Name}]
	return e, ok && (e.What != trace.Same || e.Count == int64(c.Elements))
}

// plain reports whether the backend of a name is package ref, under whatever name:
// there a comparison with ref is one with itself, and there is one way through each
// kernel.
func plain(backend string) bool { return backend == "ref" || backend == "cpu-ref" }

// right is clauses 1 to 6: every case of the clause's kernels has the result of
// the definition, and the definition gave what is recorded.
func right(p *contract.Pass) {
	for _, d := range read(p) {
		d.right(p)
	}
}

func (d *drilled) right(p *contract.Pass) {
	d.noSecond(p)
	pinned := d.Seed == golden.KernelSeed
	for _, kernel := range family(p.Clause.ID) {
		s := d.Spec
		s.Kernels = []string{kernel}
		cases := s.Cases()
		if pinned || !plain(d.header.Backend) || exact(kernel) {
			for _, c := range cases {
				e, ok := d.of(c)
				p.Expect(1)
				judge(p, e, ok)
			}
		}
		if pinned {
			d.recorded(p, kernel, cases)
		}
	}
}

// exact reports whether a kernel's results are held against integers.
func exact(kernel string) bool { return slices.Contains(family(id+".6"), kernel) }

// judge sees, and reports, what came of a case.
func judge(p *contract.Pass, e trace.Event, ok bool) {
	switch {
	case !ok || e.What == trace.Guard || e.What == trace.Input:
		return // clause 7 reports it; of the result nothing is known
	case e.What != trace.Same:
		report(p, e)
	}
	p.Saw(1)
}

// report adds a finding about a case.
func report(p *contract.Pass, e trace.Event) {
	at := p.At(e.Rank, e.Step).Of(e.Op)
	if e.What == trace.Returned || e.What == trace.Failed {
		at.Report(nil, nil, "case %s: %s", e.Unit, e.Text)
		return
	}
	at.Report(bits(e.Got), bits(e.Want), "case %s: %s", e.Unit, e.Text)
}

func bits(x uint32) string { return fmt.Sprintf("%#08x", x) }

// recorded compares what the definition gave in all cases of a kernel with what is
// recorded.
func (d *drilled) recorded(p *contract.Pass, kernel string, cases []*drill.Case) {
	g, err := golden.LoadKernels()
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	want, ok := g.Of(kernel, d.Level, len(cases), d.header.Arithmetic)
	if !ok {
		p.Doubt("%s: no results of %d cases of level %d under canonical arithmetic %d are recorded; %q records them",
			kernel, len(cases), d.Level, d.header.Arithmetic, golden.Record)
		return
	}
	var sum kernels.Digest
	complete := true
	for _, c := range cases {
		e, ok := d.of(c)
		if complete = complete && ok && e.Digest != nil; !complete {
			break
		}
		sum.Add(*e.Digest)
	}
	if p.Found(complete) && sum != want {
		p.At(d.rank, 0).Of(kernel).Report(text(sum), text(want),
			"what package ref gives here is not what was recorded: it was compiled otherwise, or the machine computes otherwise")
	}
}

func text(d kernels.Digest) string {
	b, _ := d.MarshalText() // never fails
	return "digest " + string(b)
}

// noSecond reports cases that have a second event.
func (d *drilled) noSecond(p *contract.Pass) {
	for _, e := range d.twice {
		if slices.Contains(family(p.Clause.ID), e.Op) {
			p.At(e.Rank, e.Step).Of(e.Op).Report(nil, nil, "case %s was recorded twice", e.Unit)
		}
	}
}

// kept is clause 7: in no case of any kernel was anything changed that is no
// output, and all that is demanded besides is met.
func kept(p *contract.Pass) {
	own := family(p.Clause.ID)
	for _, d := range read(p) {
		for _, c := range d.Cases() {
			e, ok := d.of(c)
			// A call that failed left nothing to compare; the kernel's clause reports it.
			if !p.Found(ok && (e.What != trace.Failed || slices.Contains(own, c.Kernel))) {
				continue
			}
			if e.What == trace.Guard || e.What == trace.Input || e.What != trace.Same && slices.Contains(own, c.Kernel) {
				report(p, e)
			}
		}
	}
}
