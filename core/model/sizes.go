package model

// Sizes counts, in elements, what New and NewActs allocate for a part of a valid
// configuration and micro-batches of at most seqs sequences: acts for the
// activations of one micro-batch, fixed for tables and scratch. It is their own
// layout, run without memory.
func Sizes(c Config, p Part, seqs int) (acts, fixed int) {
	m := &Model{c: c, part: p, s: p.split(c)}
	var count arena
	a := Acts{blocks: make([]blockActs, p.Layers.Len())}
	a.layout(m, seqs, &count)
	acts = count.off
	count = arena{}
	m.mem.layout(m, seqs, &count)
	return acts, count.off + 2*c.SeqLen*(c.HeadDim/2)
}

// KVWidth is the number of columns of the key, and of the value, that the part
// computes.
func (p Part) KVWidth(c Config) int { return p.TensorParallel(c).LocalKVSize() }
