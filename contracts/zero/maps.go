package zero

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// mapped is clause 7: block maps assign every block one owner, report the true
// imbalance, and a run under a map is the full step.
func mapped(p *contract.Pass, r *evidence.Run) {
	for _, x := range firsts(r) {
		for _, kind := range []string{plan.ShardRoundRobin, plan.ShardContiguous, plan.ShardBalanced} {
			if err := x.checkMap(kind); p.Found(true) && err != nil {
				p.At(-1, -1).Report(nil, nil, "block map %s over %d ranks: %v", kind, len(x.group), err)
			}
		}
	}
	if sharding.ByElements(r.Config.Plan) {
		return
	}
	held := holdingsOf(r)
	for _, x := range firsts(r) {
		for step := r.First - 1; step < r.Steps; step++ {
			x.checkOwners(p, r, held, step)
			x.checkLaw(p, r, held, step)
		}
		x.checkBalance(p, r)
	}
	if c, ok := unsharded(p, r); ok {
		states(p, c)
	}
}

// checkMap recomputes what a map says of the part.
func (x *part) checkMap(kind string) error {
	s := sharding.Sizes(&x.layout)
	m, err := sharding.BlockMap(kind, s, len(x.group))
	if err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if err := law(kind, s, m); err != nil {
		return err
	}
	loads, blocks := make([]uint64, len(x.group)), 0
	for rank := range loads {
		mine, err := m.BlocksOf(rank)
		if err != nil {
			return err
		}
		for _, b := range mine {
			if owner, err := m.Owner(b); err != nil || owner != rank {
				return fmt.Errorf("block %d is rank %d's, its owner is %d (%v)", b, rank, owner, err)
			}
			loads[rank] += s.Blocks[b]
			blocks++
		}
	}
	if blocks != len(s.Blocks) {
		return fmt.Errorf("%d blocks have owners, not %d", blocks, len(s.Blocks))
	}
	loads[m.Embed] += s.Embed
	loads[m.FinalNorm] += s.FinalNorm
	loads[m.Head] += s.Head
	b, err := m.Balance(s)
	if err != nil {
		return err
	}
	if want := imbalance(loads); !slices.Equal(b.Loads, loads) || math.Abs(b.MaxOverMean-want) > 1e-12*want {
		return fmt.Errorf("loads %v with imbalance %v are reported as %v with %v", loads, want, b.Loads, b.MaxOverMean)
	}
	return nil
}

// imbalance is the largest load over the mean.
func imbalance(loads []uint64) float64 {
	sum := uint64(0)
	for _, l := range loads {
		sum += l
	}
	return float64(slices.Max(loads)) * float64(len(loads)) / float64(sum)
}

// blamed is the first rank that holds what is another's, or the owner where none
// does.
func blamed(holders []int, owner int) int {
	if i := slices.IndexFunc(holders, func(r int) bool { return r != owner }); i >= 0 {
		return holders[i]
	}
	return owner
}

// checkOwners judges who holds the optimizer state of each parameter.
func (x *part) checkOwners(p *contract.Pass, r *evidence.Run, held holdings, step int) {
	for _, c := range x.cuts {
		var want []int // one rank
		for place, rank := range x.group {
			if !c.Own(place).Empty() {
				want = append(want, rank)
			}
		}
		for _, what := range r.Moments() {
			var who []int
			for _, place := range held.places(x, c, step, what) {
				who = append(who, x.group[place])
			}
			// Nobody is a finding only where others show that moments were recorded.
			if p.Found(len(who) > 0 || x.recorded(r, held, step, what)) && !slices.Equal(who, want) {
				p.At(blamed(who, want[0]), step).Of(c.Name).Report(who, want, "ranks %v hold the state %s, the map gives it to rank %d alone", who, what, want[0])
			}
		}
	}
}

// recorded reports whether every rank of the group that owns something recorded
// some of the moments.
func (x *part) recorded(r *evidence.Run, held holdings, step int, what string) bool {
	for place, rank := range x.group {
		owns := slices.ContainsFunc(x.cuts, func(c sharding.Cut) bool { return !c.Own(place).Empty() })
		has := slices.ContainsFunc(x.cuts, func(c sharding.Cut) bool { return len(held.within(x, c, rank, step, what)) > 0 })
		if owns && !has {
			return false
		}
	}
	return len(r.Missing()) == 0
}

// checkBalance compares the imbalance that the map reports with the one that the
// allocated moments have. A rank with several model parts allocates for all of
// them, so only ranks with one are compared.
func (x *part) checkBalance(p *contract.Pass, r *evidence.Run) {
	if r.Config.Plan.Shard == plan.ShardTensors || len(partsOf(r, x.rank)) > 1 {
		return
	}
	var b shard.Balance
	m, err := sharding.BlockMap(r.Config.Plan.Shard, sharding.Sizes(&x.layout), len(x.group))
	if err == nil {
		b, err = m.Balance(sharding.Sizes(&x.layout))
	}
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	for step := r.First; step < r.Steps; step++ {
		var loads []uint64
		for _, rank := range x.group {
			for e := range r.In(step, rank, trace.KindMemory) {
				if e.What == names.MemMoments {
					loads = append(loads, uint64(e.Count))
				}
			}
		}
		if !p.Found(len(loads) == len(x.group)) {
			continue
		}
		if got := imbalance(loads); !(math.Abs(got-b.MaxOverMean) <= 1e-12*got) {
			p.At(-1, step).Report(got, b.MaxOverMean,
				"ranks %v hold %v bytes of moments: the largest is %v of the mean, the map reports %v", x.group, loads, got, b.MaxOverMean)
		}
	}
}
