package formulas

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Units of the taps that are judged: blocks are those of Block.
const (
	EmbedUnit = "embed"
	FinalUnit = "final"
)

// Block is the unit of block l.
func Block(l int) string { return fmt.Sprintf("block.%d", l) }

// Tokens and Targets are the taps of the batch, in the units embed and final: one
// column, a target that is ignored negative.
const (
	Tokens  = "tokens"
	Targets = "targets"
)

// InBlock and InFinal name the taps of a block and of what follows the last one, as
// independent.Pins describes them.
func InBlock() []string {
	return []string{"x", "n1", "q", "k", "v", "attention", "mid", "n2", "gate", "up",
		"dgate", "dup", "dmlp", "dmid", "dattention", "dq", "dk", "dv", "dattn", "dx"}
}

// InFinal names the taps of the final norm and the head.
func InFinal() []string { return []string{"x", "n", "logits", "dlogits", "dnorm", "dx"} }

// tapped are the steps with captured taps, ascending.
func (s *subject) tapped() []int {
	steps := map[int]bool{}
	for e := range s.run.Events(0, trace.KindTap) {
		if len(e.Data) > 0 {
			steps[e.Step] = true
		}
	}
	return slices.Sorted(maps.Keys(steps))
}

// values is clause 2.
func (s *subject) values() {
	steps := s.tapped()
	if len(steps) == 0 {
		s.Doubt("no step's activations are recorded with their elements")
		return
	}
	if steps[len(steps)-1] < 1 {
		s.Doubt("activations are recorded of the first step alone, in which all norm weights are 1: those of a later step are needed")
	}
	for _, step := range steps {
		s.step(step)
	}
}

// step judges one step.
func (s *subject) step(step int) {
	names := s.pinned()
	s.Expect(len(names) + 1 + len(s.params))
	weights, ok := s.all(step-1, trace.Weight)
	if !ok {
		return
	}
	taps := s.collect(step)
	batch, ok := taps.batch(s)
	if !ok {
		return
	}
	pins := independent.Pins{}
	for _, name := range names {
		if x, ok := taps.rows(s, name); ok {
			pins[name] = x
		}
	}
	m, err := independent.New(s.shape, weights)
	if err != nil {
		s.Doubt("step %d: %v", step, err)
		return
	}
	m.Workers, m.Groups = s.run.Workers, s.run.Config.Model.Groups.Tensor
	got, err := m.Evaluate(batch, pins)
	if err != nil {
		s.Doubt("step %d: %v", step, err)
		return
	}
	for _, j := range got.Judged {
		what, phase := "activation", contract.Forward
		if _, name, _ := strings.Cut(j.Name, "/"); strings.HasPrefix(name, "d") {
			what, phase = "gradient of an activation", contract.Backward
		}
		s.judge(step, phase, j, "the "+what+" is not the formula's of the recorded tensors before it")
	}
	if x, ok := s.scalar(step, trace.Loss); ok {
		s.judge(step, contract.Forward, got.Loss.Judge(trace.Loss, []float32{float32(x)}), "the loss is not the mean over the valid targets")
	}
	for _, p := range s.params {
		if g := s.elements(step, trace.Grad, p); g != nil {
			s.judge(step, contract.Backward, got.Gradients[p.Name].Judge(p.Name, g), "the gradient is not the formula's")
		}
	}
}

// pinned names all tensors that are pinned.
func (s *subject) pinned() []string {
	var out []string
	for l := range s.shape.Layers {
		for _, x := range InBlock() {
			out = append(out, Block(l)+"/"+x)
		}
	}
	for _, x := range InFinal() {
		out = append(out, FinalUnit+"/"+x)
	}
	return out
}

// taps are the captured taps of a step by unit and tensor, of which each logical
// worker's follow each other.
type taps map[string]map[int][]trace.Event

// collect finds the taps of a step.
func (s *subject) collect(step int) taps {
	out := taps{}
	for e := range s.run.In(step, 0, trace.KindTap) {
		worker, _, ok := s.run.WorkerOf(0, e.Micro)
		if !ok || len(e.Data) == 0 {
			continue
		}
		name := e.Unit + "/" + e.Tensor
		if out[name] == nil {
			out[name] = map[int][]trace.Event{}
		}
		out[name][worker] = append(out[name][worker], e)
	}
	return out
}

// rows puts a tensor together, one row per token, by position in the batch: worker
// w has the positions w, w+W, w+2W, ...; ok is false where rows lack or are too
// many.
func (t taps) rows(s *subject, name string) (x []float32, ok bool) {
	n, columns, captured := s.run.Config.Sequences, 0, 0
	for _, events := range t[name] {
		columns = int(events[0].Count)
		for _, e := range events {
			captured += len(e.Data)
		}
	}
	sequence := columns * s.shape.SeqLen
	if float64(n)*float64(columns)*float64(s.shape.SeqLen) != float64(captured) {
		return nil, false // as many as the header says are made only where they are there
	}
	x = make([]float32, n*sequence)
	for w := range s.run.Workers {
		events := slices.Clone(t[name][w])
		slices.SortStableFunc(events, func(a, b trace.Event) int { return a.Micro - b.Micro })
		var all []float32
		for i, e := range events {
			if i > 0 && e.Micro == events[i-1].Micro || e.Lo != 0 || e.Hi != e.Count || int(e.Count) != columns {
				return nil, false // twice, or not whole
			}
			all = append(all, e.Data...)
		}
		hand := independent.Dealt(n, w, s.run.Workers)
		if len(all) != len(hand)*sequence {
			return nil, false
		}
		for i, position := range hand {
			copy(x[position*sequence:], all[i*sequence:(i+1)*sequence])
		}
	}
	return x, columns > 0
}

// batch is the recorded batch.
func (t taps) batch(s *subject) (b independent.Batch, ok bool) {
	tokens, ok1 := t.rows(s, EmbedUnit+"/"+Tokens)
	targets, ok2 := t.rows(s, FinalUnit+"/"+Targets)
	for i := range tokens {
		b.Tokens = append(b.Tokens, int32(tokens[i]))
	}
	for i := range targets {
		b.Targets = append(b.Targets, int32(targets[i]))
	}
	b.Seqs = s.run.Config.Sequences
	return b, ok1 && ok2
}
