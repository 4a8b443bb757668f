package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/det"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	return append([]suite.Mutant{
		{ID: "bit-flipped-once", Clause: "C-DET-001.1", On: "nano dp=4 again", At: at(3, 0, "norm.weight"), Rows: []string{"B152"}, Break: fault.Into(contract.Again, fault.Corrupt(3, 30, 0)),
			Says: "one matrix product gives one wrong last bit in one of two runs, as an unstable unit does (pytorch/torchtitan#951)"},
		{ID: "bit-flipped-once-odd", Clause: "C-DET-001.1", On: "odd dp=4 again", At: at(some, 1, "embed_tokens"), Break: fault.Into(contract.Test, fault.FlipBit(-1, model.HeadUnit, 1, 5, 0)),
			Says: "one bit of the head's reduced gradient is flipped on all ranks in one of two runs"},
		{ID: "seed-ignored", Clause: "C-DET-001.2", On: "nano dp=4 again", At: at(some, -1, "embed_tokens"), Break: fault.Into(contract.Other, fixedSeed(1)),
			Says: "the seed that is given is never used"},
		{ID: "last-bit", Clause: "C-DET-001.3", On: det.GoldenPrefix + "nano-adamw-untied", At: at(some, 0, "golden"), Break: fault.Into(contract.Test, fault.Corrupt(0, 95, 0)),
			Says: "one matrix product gives one wrong last bit, whenever this run is repeated: silent corruption that repetition cannot show"},
		{ID: "learning-rate-rounded", Clause: "C-DET-001.3", On: det.GoldenPrefix + "odd-sgd-tied", At: at(some, 0, "weights"), Everywhere: true, Break: fault.Into(contract.Test, fault.LearningRate(-1, 1+1e-6)),
			Says: "the learning rate is off by one part in a million"},
		{ID: "bias-gradients-lost", Clause: "C-DET-001.3", On: det.GoldenPrefix + "nano-adamw-biased", At: at(some, 0, ""), Everywhere: true, Break: fault.Into(contract.Test, loseBiasGrads()),
			Says: "biases get no gradient, on any plan: the loss falls all the same"},
		{ID: "last-bit-in-step-15", Clause: "C-DET-001.3", On: det.GoldenPrefix + "odd-adamw-tied", At: at(some, 15, "weights"), Break: fault.Into(contract.Test, lateRate(15)),
			Says: "the learning rate of one late step is off by one part in a million: all steps before it are right"},
		{ID: "plan-dependent", Clause: "C-DET-001.4", On: "odd on plans", At: at(some, 0, "layers.1."), Break: fault.Into("dp=4", fault.OnCalls(fault.Reductions(model.BlockUnit(1), -1), fault.FarFirst)),
			Says: "a plan adds the ranks in another order than the canonical tree"},
		{ID: "thread-dependent", Clause: "C-DET-001.4", On: "nano on plans", At: at(some, 0, "one thread"), Break: fault.Into(det.OneThread, corruptOnOneThread(0, 9, 0)),
			Says: "a kernel takes another path on one thread, with another last bit"},
		{ID: "schedule-twice-as-fast", Clause: "C-DET-001.5", On: det.SchedulePrefix + "warmup-cosine", At: at(some, 0, "learning rate"), Rows: []string{"B013"}, Break: fault.Into(contract.Test, fault.Schedule(2)),
			Says: "the schedule moves once per rank instead of once per step (huggingface/transformers#24088)"},
		{ID: "horizon-counted-from-warm-up", Clause: "C-DET-001.5", On: det.SchedulePrefix + "warmup-cosine-floor", At: at(some, 4, "learning rate"), Break: fault.Into(contract.Test,
			fault.OnConfig(func(_ int, c *spec.Config) { c.Optimizer.Horizon += c.Optimizer.Warmup })),
			Says: "the cosine is as long as the horizon and begins after the warm-up: right until then"},
		{ID: "floor-forgotten", Clause: "C-DET-001.5", On: det.SchedulePrefix + "cosine", At: at(some, 1, "learning rate"), Break: fault.Into(contract.Test,
			fault.OnConfig(func(_ int, c *spec.Config) { c.Optimizer.MinLR = 0 })),
			Says: "the cosine ends at 0 instead of the smallest learning rate"},
	}, fault.Scalars(contract.Again, "C-DET-001.1", "nano dp=4 again", " is another")...)
}
