package independent

import (
	"bytes"
	"fmt"
	"regexp"
)

// Corpus is a text as training data. Its bytes are tokens. A paragraph ends with
// a run of line ends that holds two newlines or more, which belongs to it; a
// sequence is up to SeqLen consecutive predictions of the next byte within one
// paragraph, and the predictions of a paragraph are cut from its beginning. The
// sequences are counted in the order of the text, and a step takes PerStep of
// them; the end of the text is followed by its beginning.
type Corpus struct {
	// SeqLen and PerStep are the tokens of a sequence and the sequences of a step,
	// at least 1 each.
	SeqLen, PerStep int
	// Pad says that sequences left over at the end of the text make a last step,
	// filled up with sequences of token 0 that predict nothing; else they are left
	// out.
	Pad bool
	// Blank lists positions of every step whose predictions are all ignored.
	Blank []int

	pairs []pair
	text  []byte
}

// pair is a sequence in the text: predictions of bytes from+1 to to.
type pair struct{ from, to int }

// Ignored is the target of a position that predicts nothing.
const Ignored int32 = -1

// Sequence is a row of a batch, as it is at one position of one step.
type Sequence struct {
	// ID is its place among the sequences of the text; -1 is padding.
	ID              int64
	Tokens, Targets []int32
	Valid           int // targets that are not Ignored
}

// lineEnds matches a whole run of line ends, of any length.
var lineEnds = regexp.MustCompile(`[\r\n]+`)

// Read cuts a text of bytes below vocab; c's fields say how. It refuses sizes below
// 1, blank positions outside a step, a byte outside the vocabulary, and a text
// that does not fill a step.
func (c *Corpus) Read(text []byte, vocab int) error {
	if c.SeqLen < 1 || c.PerStep < 1 {
		return fmt.Errorf("independent data: sequences of %d tokens, %d of them a step: must be at least 1", c.SeqLen, c.PerStep)
	}
	for _, at := range c.Blank {
		if at < 0 || at >= c.PerStep {
			return fmt.Errorf("independent data: blank position %d: must lie in [0,%d)", at, c.PerStep)
		}
	}
	for i, x := range text {
		if int(x) >= vocab {
			return fmt.Errorf("independent data: byte %d at %d: must lie below the vocabulary size %d", x, i, vocab)
		}
	}
	c.text, c.pairs = text, nil
	start := 0
	for _, run := range append(lineEnds.FindAllIndex(text, -1), []int{len(text), len(text)}) {
		last := run[1] == len(text)
		if last && run[0] < run[1] {
			continue // line ends at the end of the text end nothing that follows
		}
		if last || bytes.Count(text[run[0]:run[1]], []byte{'\n'}) > 1 {
			c.paragraph(start, run[1])
			start = run[1]
		}
	}
	if c.Steps() == 0 {
		return fmt.Errorf("independent data: %d bytes make %d sequences of at most %d tokens: too few for a step of %d",
			len(text), len(c.pairs), c.SeqLen, c.PerStep)
	}
	return nil
}

// paragraph adds the sequences of the bytes [from, to), which have to-from-1
// predictions.
func (c *Corpus) paragraph(from, to int) {
	for last := to - 1; from < last; from += c.SeqLen {
		c.pairs = append(c.pairs, pair{from, min(from+c.SeqLen, last)})
	}
}

// Steps is the number of steps of an epoch.
func (c *Corpus) Steps() int {
	if c.Pad {
		return (len(c.pairs) + c.PerStep - 1) / c.PerStep
	}
	return len(c.pairs) / c.PerStep
}

// Step gives the sequences of a step by position; steps are counted from 0 over
// all epochs.
func (c *Corpus) Step(step int) []Sequence {
	out := make([]Sequence, c.PerStep)
	for i := range out {
		q := &out[i]
		*q = Sequence{ID: -1, Tokens: make([]int32, c.SeqLen), Targets: make([]int32, c.SeqLen)}
		for j := range q.Targets {
			q.Targets[j] = Ignored
		}
		if id := step%c.Steps()*c.PerStep + i; id < len(c.pairs) {
			q.ID = int64(id)
			c.fill(q, c.pairs[id], c.blank(i))
		}
	}
	return out
}

func (c *Corpus) fill(q *Sequence, p pair, blank bool) {
	for j, x := range c.text[p.from:p.to] {
		q.Tokens[j] = int32(x)
		if !blank {
			q.Targets[j] = int32(c.text[p.from+j+1])
			q.Valid++
		}
	}
}

func (c *Corpus) blank(position int) bool {
	for _, b := range c.Blank {
		if b == position {
			return true
		}
	}
	return false
}

// Dealt lists the positions of a step of n sequences that a logical worker takes:
// as when cards are dealt in turn. A worker outside [0, workers) has none.
func Dealt(n, worker, workers int) []int {
	var hand []int
	for position := range n {
		if workers > 0 && position%workers == worker {
			hand = append(hand, position)
		}
	}
	return hand
}

// Cut lists how many of n sequences each of a worker's micro-batches takes, in
// order: as equal as can be, larger ones first.
func Cut(n, micro int) []int {
	out := make([]int, max(micro, 0))
	for i := range out {
		out[i] = (n + micro - 1 - i) / micro
	}
	return out
}

// RankWorkers lists the logical workers that data-parallel rank r of dp walks, in
// order: neighbours, or every dp-th where gradients are sharded (ZeRO 2 and 3).
// dp divides workers.
func RankWorkers(r, dp, workers int, sharded bool) []int {
	var out []int
	for w := range workers {
		if sharded && w%dp == r || !sharded && w/(workers/dp) == r {
			out = append(out, w)
		}
	}
	return out
}
