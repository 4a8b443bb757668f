package cpu

import "math/bits"

// blockK is the longest piece of a chain that a tile runs at once: a panel of A
// of that length stays in the first cache, and a block of B, blockN wide, in the
// second (768 KiB). Longer pieces of narrower blocks pass over C less often.
const blockK = 512

// step is one piece of the chains of a tile: k in [k0, k0+n) of a term. Sums
// live on a stack of arrays, of which level 0 is C itself.
type step struct {
	term, k0, n int
	load        int  // level that holds the partial sum; -1 starts from +0
	store       int  // level that takes the result
	merges      int  // finished sums added: levels store+merges-1 down to store
	pack        int  // where the packed B of this step starts, in k
	last        bool // the last step of its block
}

// planner builds the steps of a product.
type planner struct {
	steps  []step
	top    int // finished sums on the stack
	levels int // highest level in use, plus one
}

// chain adds the pieces of one chain over k in [lo, hi) of a term: evenly cut,
// none longer than blockK.
func (p *planner) chain(term, lo, hi, load int) {
	parts := (hi - lo + blockK - 1) / blockK
	for i := range parts {
		a, b := lo+i*(hi-lo)/parts, lo+(i+1)*(hi-lo)/parts
		p.add(step{term: term, k0: a, n: b - a, load: load, store: p.top})
		load = p.top
	}
}

func (p *planner) add(s step) {
	p.steps = append(p.steps, s)
	p.levels = max(p.levels, s.store+1)
}

// leaf finishes group g of n: its chain goes on the stack and is merged as
// tree() adds: once per trailing zero of the number of leaves so far, and with
// all that is left at the end.
func (p *planner) leaf(g, n int) {
	merges := bits.TrailingZeros(uint(g + 1))
	if g == n-1 {
		merges = p.top
	}
	s := &p.steps[len(p.steps)-1]
	s.store, s.merges = p.top-merges, merges
	p.top += 1 - merges
}

// grouped plans a product that starts from +0: for each group one chain through
// all terms.
func (p *planner) grouped(x *product) {
	for g := range x.groups {
		first, load := len(p.steps), -1
		for t := range x.terms {
			lo, hi := x.term[t].group(g)
			p.chain(t, lo, hi, load)
			if len(p.steps) > first {
				load = p.top
			}
		}
		if len(p.steps) == first {
			p.add(step{load: -1, store: p.top}) // no k at all: +0
		}
		p.leaf(g, x.groups)
	}
}

// blocks joins consecutive steps whose B is packed together, and returns the
// number of blocks and the longest one in k.
func (p *planner) blocks() (count, longest int) {
	k := 0
	for i := range p.steps {
		s := &p.steps[i]
		s.pack = k
		k += s.n
		longest = max(longest, k)
		if i+1 == len(p.steps) || k+p.steps[i+1].n > blockK {
			s.last = true
			count++
			k = 0
		}
	}
	return count, longest
}
