package suite

import (
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// broken is a resumption that goes wrong: in the files, or in the run that goes
// on from them.
func broken(from string, skip bool, between func(root string, step int) error, resumed func(spec.Config) fault.Fault) func(*suite.Case) {
	return func(c *suite.Case) {
		r := c.Runs[contract.Test]
		stores := suite.Exact(*r.Config, []string{from})
		x := resumption{from: compare.On(*r.Config, stores[0]), to: *r.Config, skip: skip, between: between}
		if resumed != nil {
			x.resumed = resumed(*r.Config)
		}
		r.Key, r.Do = "", x.run
		c.Runs[contract.Test] = r
	}
}

// lastStage selects the parameters of odd's second half: what the second of two
// stages stores.
func lastStage(name string) bool {
	return name == model.NormName || strings.Contains(name, "layers.2.") || strings.Contains(name, "layers.3.")
}

// unchecked opens every checkpoint with sizes and hashes as they are.
func unchecked(c *suite.Case) {
	*c = damaged(suite.Options{}, func(dir string) error {
		// What cannot be resealed (a file or a manifest that is gone) stays as it is.
		_ = reseal(dir)
		return nil
	})
}

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, change func(*suite.Case), says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-CKPT-001." + clause, On: on, Break: change, Says: says}
	}
	files := func(from string, skip bool, between func(string, int) error) func(*suite.Case) {
		return broken(from, skip, between, nil)
	}
	run := func(from string, f fault.Fault) func(*suite.Case) {
		return broken(from, false, nil, func(spec.Config) fault.Fault { return f })
	}
	const toStages, toTensor, toShards = "odd dp=4,zero=1,shard=balanced then dp=1,pp=3", "odd dp=1,pp=2 then dp=2,tp=2,zero=2", "nano dp=1,tp=2,pp=2 then dp=8,zero=1"
	const skipping = "odd dp=2 then dp=4,zero=3 step 1 skipped"
	return []suite.Mutant{
		m("moments-stored-as-0", "1", toTensor, at(some, 1, "m on rank"), files("pp=2", false, edited(forgetMoments)),
			"the optimizer's state is stored as zeros, and all hashes agree (NVIDIA/Megatron-LM#5077)", "B121"),
		m("one-rank's-file-of-another-step", "1", toTensor, at(some, 1, "layers.2."), files("pp=2", false, edited(mixSteps(lastStage))),
			"the second stage's part is that of the step before, and all hashes agree"),

		m("moments-not-loaded", "2", toStages, at(some, 2, ""), run("dp=4,zero=1,shard=balanced", dropMoments()),
			"the optimizer begins with moments of 0 (areal-project/AReaL#1468)", "B122"),
		m("tied-head-not-restored", "2", toStages, at(some, 2, ""), run("dp=4,zero=1,shard=balanced", initialHead(2)),
			"the last stage goes on with the initial weights of its tied head"),
		m("schedule-begins-anew", "2", toShards, at(some, 2, ""), broken("tp=2,pp=2", false, nil, func(c spec.Config) fault.Fault {
			return fault.Rate(func(step int) float64 { return c.Optimizer.At(step - stored) })
		}), "the learning-rate schedule begins anew while the step counter goes on"),

		m("counter-begins-anew", "3", toShards, at(some, 1, "0 optimizer steps"), files("tp=2,pp=2", false, recounted(func(*contents) int { return 0 })),
			"bias correction and schedule begin at step 0", "B105"),
		m("counter-is-the-number-of-batches", "3", skipping, at(some, 1, "2 optimizer steps"), files("dp=2", true, recounted(func(s *contents) int { return s.Step })),
			"a step that was skipped before the run was stored counts after it"),
		m("one-rank-begins-anew", "3", toShards, at(3, 2, "counter"), run("tp=2,pp=2", fault.IdleCounter(3)),
			"one rank continues with the initial step number (horovod/horovod#526)", "B010"),

		m("data-begins-anew", "4", toTensor, at(some, 2, "sequences"), run("pp=2", shiftData(-stored)),
			"the data begins at the first sequence (huggingface/accelerate#4071, PrimeIntellect-ai/prime-rl#1035)", "B125"),
		m("data-off-by-one", "4", toStages, at(some, 2, "sequences"), run("dp=4,zero=1,shard=balanced", shiftData(1)),
			"one batch is left out after the interruption"),

		m("hashes-not-checked", "5", damagedName, at(some, some, "a bit of the data flipped"), unchecked,
			"sizes and hashes of files are not compared with the manifest"),
	}
}
