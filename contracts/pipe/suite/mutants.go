package suite

import (
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-PIPE-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	const shorter = "odd dp=1,pp=4,microbatches=8"
	return append([]suite.Mutant{
		m("block-on-two-stages", "1", "nano dp=1,pp=2", at(0, -1, "layers.2."), layers(0, 6),
			"the first stage cuts another number of layers: block 2 runs on both stages", "B083"),
		m("block-on-no-stage", "1", "nano dp=1,pp=2", at(some, 0, "block.1"), layers(0, 2),
			"the first stage cuts another number of layers: block 1 runs nowhere (ml-explore/mlx-lm#1688, NVIDIA/Megatron-LM#1304)", "B083"),

		m("shape-of-the-first", "2", shorter, at(1, 0, "micro-batch 3"), fixedShape(2, 2*45*35),
			"later stages take every micro-batch for one of the first one's shape (pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195)", "B085"),

		m("messages-swapped", "3", "nano dp=1,pp=4,schedule=gpipe", at(1, 0, "micro-batch 2"), swapMessages(0, 2),
			"two micro-batches of one shape change places between two stages (NVIDIA/Megatron-LM#5271)", "B087"),
		m("stale-receive-buffer", "3", shorter, at(1, 0, "micro-batch 3"), staleReceive(1),
			"a shorter micro-batch finds the longer one before it in the receive buffer", "B085"),

		m("labels-of-another-batch", "4", "nano dp=1,pp=2", at(some, 1, ""), lastStageAhead(1),
			"the last stage takes its targets from the batch after the first stage's (deepspeedai/DeepSpeed#5729)", "B086"),
		m("micro-batch-gradient-lost", "4", "nano dp=1,pp=2", at(0, 0, "logical worker 1"), loseGradients(0, 14, 28),
			"the first stage adds no weight gradient of its second micro-batch (NVIDIA-NeMo/Automodel#3530)", "B080"),
		m("ninth-micro-batch-lost", "4", "odd dp=1,pp=2,microbatches=12"+suite.Epochs, at(0, 0, "logical worker 2"), loseGradients(0, 8*14, 9*14),
			"the first stage adds no weight gradient of its ninth micro-batch: the mask of those that are done has eight bits"),
		m("rate-wrong-from-step-8", "4", "odd dp=1,pp=2,microbatches=12"+suite.Epochs, at(some, 8, "weight on rank"), fault.OnUpdate(func(u *fault.Update) {
			if u.Step.T >= 8 {
				u.Step.T -= 8
			}
			u.Do()
		}), "bias correction begins anew after eight steps, on both stages"),

		m("backward-in-another-order", "5", "nano dp=1,pp=4,schedule=gpipe", at(some, 0, "RecvBackward of micro-batch 1"), fault.OnSchedule(swapBackward(1, 2)),
			"all stages run the backward passes of two micro-batches in exchanged order: chains of sums get other last bits"),
		m("activations-never-freed", "5", "nano dp=1,pp=4", at(some, 0, "by the plan's schedule"), fault.OnSchedule(allForwardFirst),
			"all forward passes run before the first backward pass although the plan is 1F1B: every stage holds all micro-batches"),

		m("nothing-overlaps", "6", "nano dp=1,pp=2", at(some, 0, "idle share"), fault.OnSchedule(oneAtATime),
			"each micro-batch goes through all stages before the next begins: results are right, half of the time is idle", "B091"),

		m("tied-gradient-kept", "7", "odd dp=1,pp=3", at(2, 0, "tied gradient"), skipMessages(names.TiedGradient),
			"the last stage keeps the head's gradient of a tied embedding", "B077"),
		m("tied-gradient-sent-twice", "7", "odd dp=1,pp=3", at(some, 0, "tied gradient"), fault.OnCalls(func(c *fault.Call) bool { return message(c) && c.Label.Tensor == names.TiedGradient }, fault.Twice),
			"the tied embedding's gradient is sent twice: nothing but traffic shows it"),
		m("gradient-corrupted-on-the-way", "3", "nano dp=1,pp=2", at(0, 0, "backward message"), corruptArrivals(0),
			"one bit of a gradient is another when it arrives at the first stage"),
		m("tied-weight-kept", "7", "odd dp=1,pp=3", at(2, 0, "lm_head"), skipMessages(names.TiedWeight),
			"the last stage keeps its initial copy of a tied embedding", "B077"),
	}, fault.Scalars(contract.Test, "C-PIPE-001.4", "nano dp=1,pp=2", " of rank")...)
}

// layers makes one rank believe in another number of layers, by which it takes
// other ones than the plan gives it.
func layers(rank, n int) fault.Fault {
	return fault.OnConfig(func(r int, c *spec.Config) {
		if r == rank {
			c.Model.Layers = n
		}
	})
}

// message says whether the call sends to, or receives from, another stage.
func message(c *fault.Call) bool {
	return c.Group == names.PP && (c.Op == names.OpSend || c.Op == names.OpRecv)
}

// skipMessages swallows messages of one label ("tied gradient") on both sides:
// receivers keep what is in their buffers.
func skipMessages(label string) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return message(c) && c.Label.Tensor == label }, fault.Skip)
}

// corruptArrivals flips a bit of what one rank receives first.
func corruptArrivals(rank int) fault.Fault {
	receives := func(c *fault.Call) bool { return message(c) && c.Op == names.OpRecv && c.Rank == rank && c.N == 0 }
	return fault.OnCalls(receives, func(c *fault.Call) error {
		if err := c.Do(); err != nil {
			return err
		}
		return fault.Flip(c.Backend, c.X, 3)
	})
}

// swapMessages makes one rank send its n-th message (from 0) after the next one,
// which must be of equal length and follow without a receive between.
func swapMessages(rank, n int) fault.Fault {
	return func(p *launch.Parts) {
		var held []float32
		sent := 0
		sends := func(c *fault.Call) bool { return message(c) && c.Op == names.OpSend && c.Rank == rank }
		fault.OnCalls(sends, func(c *fault.Call) error {
			sent++
			switch sent - 1 {
			case n:
				held = make([]float32, c.X.Len())
				return c.Backend.Read(held, c.X)
			case n + 1:
				if err := c.Do(); err != nil {
					return err
				}
				buf, err := c.Backend.Alloc(len(held))
				if err != nil {
					return err
				}
				defer c.Backend.Free(buf)
				c.X = kernels.Flat(buf)
				c.Backend.Write(c.X, held)
			}
			return c.Do()
		})(p)
	}
}

// staleReceive leaves in one rank's buffer, whenever an activation is shorter
// than the longest before it, what that one was: the receive buffer was made
// once, and the shorter message goes elsewhere.
func staleReceive(rank int) fault.Fault {
	return func(p *launch.Parts) {
		var longest []float32
		activations := func(c *fault.Call) bool {
			return message(c) && c.Op == names.OpRecv && c.Rank == rank && c.Label.Tensor == schedule.RecvForward.String()
		}
		fault.OnCalls(activations, func(c *fault.Call) error {
			if err := c.Do(); err != nil {
				return err
			}
			if n := c.X.Len(); n < len(longest) {
				c.Backend.Write(c.X, longest[:n])
				return nil
			}
			longest = make([]float32, c.X.Len())
			return c.Backend.Read(longest, c.X)
		})(p)
	}
}

// fixedShape makes all stages but the first (ranks from 1 on) take every
// micro-batch of a pipeline for one of so many sequences, the first one's shape:
// shorter ones get a sequence without targets, and messages between stages have
// one length, elements.
func fixedShape(sequences, elements int) fault.Fault {
	return fault.All(padded(elements), fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		seqs, ids := s.Do()
		for s.Rank > 0 && len(seqs)%sequences != 0 {
			seqs, ids = append(slices.Clip(seqs), blank(seqs[len(seqs)-1])), append(slices.Clip(ids), -1)
		}
		return seqs, ids
	}))
}

// blank copies a sequence without its targets.
func blank(s data.Sequence) data.Sequence {
	s.Targets = slices.Repeat([]int32{-1}, len(s.Targets))
	s.Valid = 0
	return s
}

// padded sends every message of at most so many elements, tied tensors aside, as
// one of exactly so many, cut or filled with what the buffer held before.
func padded(elements int) fault.Fault {
	return func(p *launch.Parts) {
		var buffers fault.PerRank[kernels.Tensor]
		passed := func(c *fault.Call) bool { return message(c) && !strings.HasPrefix(c.Label.Tensor, "tied") }
		fault.OnCalls(passed, func(c *fault.Call) error {
			buffer := buffers.At(c.Rank)
			if buffer.Absent() {
				buf, err := c.Backend.Alloc(elements)
				if err != nil {
					return err
				}
				*buffer = kernels.Flat(buf)
			}
			n := c.X.Len()
			x, y := c.X.Range(0, n), buffer.Range(0, n)
			c.X = *buffer
			if c.Op == names.OpSend {
				c.Backend.Copy(y, x)
				return c.Do()
			}
			if err := c.Do(); err != nil {
				return err
			}
			c.Backend.Copy(x, y)
			return nil
		})(p)
	}
}

// loseGradients loses weight gradients [from, to) of one rank, counted in the
// order of its backward passes: seven matrices a block and micro-batch.
func loseGradients(rank, from, to int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &forgetful{be, from, to, 0} })
}

type forgetful struct {
	kernels.Backend
	from, to, calls int
}

func (f *forgetful) MatMulTN(c, a, b kernels.Tensor) {
	f.calls++
	if f.calls <= f.from || f.calls > f.to {
		f.Backend.MatMulTN(c, a, b)
	}
}

// allForwardFirst is GPipe's schedule in place of the plan's: no activations are
// freed before all are held.
func allForwardFirst(s schedule.Schedule) schedule.Schedule {
	if g, err := schedule.GPipe(len(s.Stages), s.Micros); err == nil {
		return g
	}
	return s // sizes that the plan's schedule has are never refused
}

// swapBackward exchanges the backward passes, and their messages, of two
// micro-batches; all forward passes must come first.
func swapBackward(a, b int) func(schedule.Schedule) schedule.Schedule {
	other := map[int]int{a: b, b: a}
	backward := []schedule.Kind{schedule.Backward, schedule.SendBackward, schedule.RecvBackward}
	return func(s schedule.Schedule) schedule.Schedule {
		for _, list := range s.Stages {
			for i := range list {
				if m, ok := other[list[i].Micro]; ok && slices.Contains(backward, list[i].Kind) {
					list[i].Micro = m
				}
			}
		}
		return s
	}
}

// oneAtATime takes each micro-batch forward and backward through all stages
// before the next one begins: nothing overlaps. It is for one chunk per stage.
func oneAtATime(s schedule.Schedule) schedule.Schedule {
	for i := range s.Stages {
		slices.SortStableFunc(s.Stages[i], func(a, b schedule.Action) int { return a.Micro - b.Micro })
	}
	return s
}
