// Package data turns a text into the batches of a training run: byte-level
// tokens, cut at paragraphs into sequences of unequal length, the same for
// every plan.
//
// A text is cut after each run of blank lines into paragraphs, and a paragraph
// of L bytes, which offers L-1 predictions, into pieces of at most SeqLen
// predictions. The last byte predicted by one piece is the first token of the
// next, so no prediction is lost at a cut. A piece is padded to SeqLen with
// token 0 and target Ignore: the numbers of valid tokens differ between
// sequences and workers, as they do in practice, and a loss that averages
// averages is found out.
package data

import (
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// ErrNoTokens is a step whose global batch has no valid token: the mean loss is
// undefined and no rank steps.
var ErrNoTokens = errors.New("the global batch has no valid token")

// Ignore is the target of a position that predicts nothing.
const Ignore int32 = -1

// maxStepTokens bounds PerStep*SeqLen.
const maxStepTokens = 1<<31 - 1

// Sequence is one row of a batch: SeqLen tokens, and for each the token that
// should follow it, or Ignore. Valid counts the targets that are not Ignore.
type Sequence struct {
	Tokens, Targets []int32
	Valid           int
}

// Policy says what becomes of the sequences at the end of the text that do not
// fill a step.
type Policy string

// The policies.
const (
	Drop Policy = "drop" // leave them out; the default
	Pad  Policy = "pad"  // fill the step with sequences that are all Ignore
)

// Options of a Set.
type Options struct {
	// SeqLen is the number of tokens of a sequence, at least 1.
	SeqLen int
	// PerStep is the number of sequences of a step, the global batch, at least 1.
	PerStep int
	// Vocab is the number of tokens of the model; every byte must lie below it.
	Vocab int
	// LastStep is Drop or Pad; empty is Drop.
	LastStep Policy
	// Blank lists positions in [0, PerStep) whose targets are ignored in every
	// step: sequences that run through the model and count for nothing.
	Blank []int
}

// piece is a sequence within the text: n predictions from byte lo on.
type piece struct{ lo, n int }

// Set is a text cut into the steps of an epoch. It is safe for concurrent use.
type Set struct {
	text   Text
	o      Options
	pieces []piece
	blank  map[int]bool
	steps  int
}

// New cuts t by the options. Its errors name the value and the rule it breaks:
// an option out of range, a byte outside the vocabulary, a text too short for
// one step, a step whose only sequences are blank.
func New(t Text, o Options) (*Set, error) {
	if o.LastStep == "" {
		o.LastStep = Drop
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	for i, b := range t.Bytes {
		if int(b) >= o.Vocab {
			return nil, fmt.Errorf("text %q: byte %d at offset %d: must lie below the vocabulary size %d", t.Name, b, i, o.Vocab)
		}
	}
	s := &Set{text: t, o: o, pieces: cut(t.Bytes, o.SeqLen), blank: map[int]bool{}}
	for _, i := range o.Blank {
		s.blank[i] = true
	}
	s.steps = len(s.pieces) / o.PerStep
	if o.LastStep == Pad && len(s.pieces)%o.PerStep != 0 {
		s.steps++
	}
	if s.steps == 0 {
		return nil, fmt.Errorf("text %q: %d bytes make %d sequences of at most %d tokens: must be at least %s",
			t.Name, len(t.Bytes), len(s.pieces), o.SeqLen, s.need())
	}
	// A step without a valid token has no loss. Full steps differ only in their
	// pieces, which all have one, so the first and the last step tell.
	for _, step := range []int{0, s.steps - 1} {
		if s.Valid(step) == 0 {
			return nil, fmt.Errorf("step %d of an epoch: no token is valid with blank positions %v: must be at least one", step, o.Blank)
		}
	}
	return s, nil
}

// need says how many sequences the text should have had.
func (s *Set) need() string {
	if s.o.LastStep == Pad {
		return "1"
	}
	return fmt.Sprintf("the %d of one step", s.o.PerStep)
}

func (o Options) check() error {
	switch {
	case o.SeqLen < 1:
		return fmt.Errorf("sequence length %d: must be at least 1", o.SeqLen)
	case o.PerStep < 1:
		return fmt.Errorf("%d sequences per step: must be at least 1", o.PerStep)
	case o.SeqLen > maxStepTokens/o.PerStep:
		return fmt.Errorf("%d sequences of %d tokens per step: must be at most %d tokens", o.PerStep, o.SeqLen, maxStepTokens)
	case o.Vocab < 1:
		return fmt.Errorf("vocabulary size %d: must be at least 1", o.Vocab)
	case o.LastStep != Drop && o.LastStep != Pad:
		return fmt.Errorf("policy %q for the last step: must be %q or %q", o.LastStep, Drop, Pad)
	}
	for _, i := range o.Blank {
		if i < 0 || i >= o.PerStep {
			return fmt.Errorf("blank position %d: must lie in [0,%d)", i, o.PerStep)
		}
	}
	return nil
}

// cut lists the pieces of all paragraphs of b, in order.
func cut(b []byte, seqLen int) []piece {
	var out []piece
	for _, p := range paragraphs(b) {
		for lo := p.Lo; lo+1 < p.Hi; lo += seqLen {
			out = append(out, piece{lo, min(seqLen, p.Hi-1-lo)})
		}
	}
	return out
}

// paragraphs cuts b after each run of line ends that holds two or more
// newlines; the run belongs to the paragraph before it.
func paragraphs(b []byte) []shard.Range {
	var out []shard.Range
	lo, newlines := 0, 0
	for i, c := range b {
		switch c {
		case '\n':
			newlines++
		case '\r': // half of a line end
		default:
			if newlines >= 2 {
				out = append(out, shard.Range{Lo: lo, Hi: i})
				lo = i
			}
			newlines = 0
		}
	}
	if lo < len(b) {
		out = append(out, shard.Range{Lo: lo, Hi: len(b)})
	}
	return out
}

// Text is the text that was cut.
func (s *Set) Text() Text { return s.text }

// Options are the options in force, defaults filled in.
func (s *Set) Options() Options { return s.o }

// Len is the number of sequences of the text, those included that Drop leaves
// out.
func (s *Set) Len() int { return len(s.pieces) }

// End is the offset in the text behind the last byte that the first n sequences
// predict: the beginning of that length makes exactly these sequences.
func (s *Set) End(n int) int {
	if n <= 0 {
		return 0
	}
	p := s.pieces[min(n, len(s.pieces))-1]
	return p.lo + p.n + 1
}

// Steps is the number of steps of an epoch, at least 1.
func (s *Set) Steps() int { return s.steps }

// IDs are the global indices of the sequences of a step, by position: the place
// of the sequence in the text, or -1 for padding. Steps beyond the epoch start
// the text again.
func (s *Set) IDs(step int) []int {
	first := s.first(step)
	ids := make([]int, s.o.PerStep)
	for i := range ids {
		ids[i] = first + i
		if ids[i] >= len(s.pieces) {
			ids[i] = -1
		}
	}
	return ids
}

// first is the global index of the first sequence of a step.
func (s *Set) first(step int) int {
	step %= s.steps
	if step < 0 {
		step += s.steps
	}
	return step * s.o.PerStep
}

// Step makes the PerStep sequences of a step, counted from 0 over all epochs.
// The slices are the caller's.
func (s *Set) Step(step int) []Sequence {
	first := s.first(step)
	out := make([]Sequence, s.o.PerStep)
	tokens := make([]int32, 2*s.o.PerStep*s.o.SeqLen)
	for i := range out {
		at := tokens[2*i*s.o.SeqLen : 2*(i+1)*s.o.SeqLen]
		out[i] = Sequence{Tokens: at[:s.o.SeqLen:s.o.SeqLen], Targets: at[s.o.SeqLen:]}
		s.fill(&out[i], first+i, i)
	}
	return out
}

// fill writes sequence id at a position of a step; q's tokens are zero.
func (s *Set) fill(q *Sequence, id, position int) {
	n := 0
	if id < len(s.pieces) {
		p := s.pieces[id]
		n = p.n
		for i := range n {
			q.Tokens[i] = int32(s.text.Bytes[p.lo+i])
			q.Targets[i] = int32(s.text.Bytes[p.lo+i+1])
		}
	}
	if s.blank[position] {
		n = 0
	}
	q.Valid = n
	for i := n; i < len(q.Targets); i++ {
		q.Targets[i] = Ignore
	}
}

// Valid is the number of targets of a step that are not Ignore: N of the loss.
func (s *Set) Valid(step int) int {
	n, first := 0, s.first(step)
	for i := 0; i < s.o.PerStep && first+i < len(s.pieces); i++ {
		if !s.blank[i] {
			n += s.pieces[first+i].n
		}
	}
	return n
}
