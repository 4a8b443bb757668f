package sharding

import "slices"

// peak is the most elements that passes hold beside a rank's shards at one time.
type peak struct{ gathered, gradients, both int }

// walk follows one micro-batch through the units of stages 2 and 3. Before a unit
// is used in stage 3 its weights are gathered, and those of the unit that comes
// next are under way; after use they are released. Backward, with one
// micro-batch per worker, a unit's full gradient lives from before its pass to
// after it. A tied head works within the pass of the final norm, on the weights
// of the embedding (unit 0) unless it has a copy.
type walk struct {
	z         *ZeRO
	live      map[int]bool // gathered units
	gathered  int
	gradients int
	peak      peak
}

// peak is that of a forward and a backward pass.
func (z *ZeRO) peak() peak {
	p := walk{z: z, live: map[int]bool{}}
	if z.MicroBatches > 1 {
		p.gradients, _, _ = z.elements() // one buffer, for the whole step
	}
	forward := make([]int, len(z.Units))
	for u := range forward {
		forward[u] = u
	}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	if last := len(z.Units) - 1; last > 0 && z.Units[last].Tied { // the norm's pass encloses the head's
		backward[0], backward[1] = last-1, last
	}
	p.pass(forward, false)
	p.pass(backward, true)
	return p.peak
}

// pass uses the units in order.
func (p *walk) pass(order []int, backward bool) {
	var open []int
	for i, u := range order {
		p.gather(u)
		if i+1 < len(order) {
			p.gather(order[i+1])
		}
		if backward && p.z.MicroBatches == 1 {
			p.gradients += p.z.Units[u].Elements
		}
		p.note()
		open = append(open, u)
		if i+1 < len(order) && p.z.Units[order[i+1]].Tied {
			continue // encloses the head's pass
		}
		for len(open) > 0 {
			p.end(open[len(open)-1], backward)
			open = open[:len(open)-1]
		}
	}
}

// source is the unit whose weights unit u reads.
func (p *walk) source(u int) int {
	if p.z.Units[u].Tied && !p.z.Units[u].Copied {
		return 0
	}
	return u
}

func (p *walk) gather(u int) {
	if s := p.source(u); p.z.Stage == 3 && !p.live[s] {
		p.live[s] = true
		p.gathered += p.z.Units[s].Elements
	}
}

// end closes the pass of unit u.
func (p *walk) end(u int, backward bool) {
	if s := p.source(u); p.live[s] {
		delete(p.live, s)
		p.gathered -= p.z.Units[s].Elements
	}
	if backward && p.z.MicroBatches == 1 {
		p.gradients -= p.z.Units[u].Elements
	}
}

func (p *walk) note() {
	p.peak.gathered = max(p.peak.gathered, p.gathered)
	p.peak.gradients = max(p.peak.gradients, p.gradients)
	p.peak.both = max(p.peak.both, p.gathered+p.gradients)
}
