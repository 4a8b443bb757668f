package suite

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// broken is a resumption that goes wrong: in the files, or in the run that goes
// on from them. from are the plans of the runs before it.
func broken(from string, skip bool, between func(root string, step int) error, resumed func(spec.Config) fault.Fault) func(*suite.Case) {
	return func(c *suite.Case) {
		r := c.Runs[contract.Test]
		x := resumption{to: *r.Config, skip: skip, between: between}
		if strings.HasSuffix(c.Name, distant.Suffix()) {
			x.at = distant
		}
		for i, p := range suite.Exact(*r.Config, strings.Split(from, suite.Then)) {
			if cfg := compare.On(*r.Config, p); i == 0 {
				x.from = cfg
			} else {
				x.via = append(x.via, cfg)
			}
		}
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

// rewritten changes what a run stored before the other reader sees it.
func rewritten(between func(root string, step int) error) func(*suite.Case) {
	return func(c *suite.Case) {
		r := c.Runs[contract.Test]
		r.Key, r.Do = "", keeping(suite.Later{}, *r.Config, between)
		c.Runs[contract.Test] = r
	}
}

// inStep is a change of the files of a step's checkpoint.
func inStep(change func(dir string) error) func(root string, step int) error {
	return func(root string, step int) error { return change(filepath.Join(root, checkpoint.DirName(step))) }
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
		m("owners-modulo-8-stored", "1", "nano dp=16,zero=3 then dp=1 of 17 sequences", at(0, 1, "embed_tokens"), files("dp=16,zero=3", false, edited(wrapParts(16, 8))),
			"the parts of owners from the ninth on are stored as those of the owners eight before, and all hashes agree"),

		m("moments-not-loaded", "2", toStages, at(some, 2, ""), run("dp=4,zero=1,shard=balanced", dropMoments()),
			"the optimizer begins with moments of 0 (areal-project/AReaL#1468)", "B122"),
		m("tied-head-not-restored", "2", toStages, at(some, 2, ""), run("dp=4,zero=1,shard=balanced", initialHead(2)),
			"the last stage goes on with the initial weights of its tied head"),
		m("schedule-begins-anew", "2", toShards, at(some, 2, ""), broken("tp=2,pp=2", false, nil, func(c spec.Config) fault.Fault {
			return fault.Rate(func(step int) float64 { return c.Optimizer.At(step - stored) })
		}), "the learning-rate schedule begins anew while the step counter goes on"),

		m("counter-begins-anew", "3", toShards, at(some, 1, "0 optimizer steps"), files("tp=2,pp=2", false, recounted(func(*contents) int { return 0 })),
			"bias correction and schedule begin at step 0", "B105"),
		m("counter-of-the-last-run-alone", "3", "odd dp=2 then dp=1,tp=2 then dp=4,zero=3", at(some, 2, "1 optimizer steps"), files("dp=2 then tp=2", false, recounted(func(s *contents) int { return s.Counter - stored })),
			"a run that was resumed stores the number of steps that it took itself"),
		m("counter-is-the-number-of-batches", "3", skipping, at(some, 1, "2 optimizer steps"), files("dp=2", true, recounted(func(s *contents) int { return s.Step })),
			"a step that was skipped before the run was stored counts after it"),
		m("counter-goes-on-in-float32", "3", "odd dp=2,zero=1 then dp=1,pp=2"+distant.Suffix(), at(some, distant.Step+stored, "counter"), run("dp=2,zero=1", fault.OnCounter(func(_, taken int) int { return int(float32(taken)) })),
			"the counter is kept in a float32, as that of torch.optim.AdamW is"),
		m("one-rank-begins-anew", "3", toShards, at(3, 2, "counter"), run("tp=2,pp=2", fault.IdleCounter(3)),
			"one rank continues with the initial step number (horovod/horovod#526)", "B010"),

		m("data-begins-anew", "4", toTensor, at(some, 2, "sequences"), run("pp=2", shiftData(-stored)),
			"the data begins at the first sequence (huggingface/accelerate#4071, PrimeIntellect-ai/prime-rl#1035)", "B125"),
		m("data-off-by-one", "4", toStages, at(some, 2, "sequences"), run("dp=4,zero=1,shard=balanced", shiftData(1)),
			"one batch is left out after the interruption"),

		m("hashes-not-checked", "5", damagedName, at(some, some, "a bit of the data flipped"), unchecked,
			"sizes and hashes of files are not compared with the manifest"),
		m("configuration-not-checked", "5", damagedName, at(-1, 2, "of another model.name"), unasked("spec"),
			"a run goes on from a checkpoint of another text, optimizer or seed"),
		m("optimizer-known-by-name-and-rate", "5", damagedName, at(-1, 2, "of another optimizer.beta1"), unasked("spec.optimizer.beta1", "spec.optimizer.beta2", "spec.optimizer.eps",
			"spec.optimizer.momentum", "spec.optimizer.decay", "spec.optimizer.clip", "spec.optimizer.warmup", "spec.optimizer.horizon", "spec.optimizer.min_lr"),
			"of the optimizer name and learning rate are compared, and nothing else"),
		m("groups-not-compared", "5", damagedName, at(-1, 2, "of another model.groups.tensor"), unasked("spec.model.groups"),
			"a run goes on in other canonical groups: its sums have another order"),
		m("later-arithmetic-taken", "5", damagedName, at(-1, 2, "manifest of the next arithmetic"), newer,
			"checkpoints of a later arithmetic are taken, and only those of an earlier one refused"),
		m("digests-not-checked", "5", damagedName, at(-1, 2, "a bit of the data flipped and the hash repaired"), unadded,
			"the elements that were loaded are not compared with those that were stored"),

		m("stored-twice-taken-once", "5", damagedName, at(-1, 2, "an element stored twice"), unread("stored twice"),
			"of elements that are stored twice one is taken"),
		m("said-twice-read-once", "5", damagedName, at(-1, 2, "an entry twice in the header"), unread("given twice"),
			"of two fields of one name the last one counts"),
		m("links-followed", "5", damagedName, at(-1, 2, "a link to the same file elsewhere"), unread("regular"),
			"a link out of the checkpoint is followed"),

		m("names-exchanged", "6", "nano dp=1,tp=2,pp=2 stored", at(-1, 1, "layers.0.self_attn.k_proj"), rewritten(inStep(all(edit(checkpoint.FileName(0), exchangeNames), reseal))),
			"a rank stores keys and values under each other's name, and its hash agrees"),
		m("a-moment-of-the-step-before", "6", "odd dp=2,tp=2,zero=1 stored", at(-1, 1, "layers.2."), rewritten(edited(mixSteps(lastStage))),
			"half of the tensors are those of the step before, and all hashes and digests agree"),

		m("counter-not-stored", "7", "nano dp=4,zero=3 stored", at(-1, 1, "the counter"), rewritten(recounted(func(*contents) int { return 0 })),
			"the manifest has no optimizer steps"),
		m("another-seed-stored", "7", "odd dp=2,tp=2,zero=1 stored", at(-1, 1, "seed in the configuration"), rewritten(inStep(manifested(setting(7, "spec", "seed")))),
			"the manifest has another seed than the run"),
		m("a-digest-of-weights-for-moments", "7", "odd dp=4,zero=1 sgd stored", at(-1, 1, "the digest of momentum"), rewritten(inStep(manifested(func(m map[string]any) {
			d := m["digests"].(map[string]any)
			d[trace.Momentum] = d[trace.Weight]
		}))), "the manifest's digest of the momentum is that of the weights"),

		m("another-order-of-tensors", "8", goldenName, at(-1, 1, "is not the golden one"), func(c *suite.Case) { *c = goldenCase(edited(func(string, *contents) error { return nil }), nil) },
			"tensors are stored whole and in one file: it reads well what it stores, and not what is stored elsewhere"),
		m("older-files-refused", "8", goldenName, at(-1, 1, "the golden checkpoint is refused"), func(c *suite.Case) {
			*c = goldenCase(nil, inStep(manifested(setting("lockstep/checkpoint/v0", "schema"))))
		}, "files that were stored once are refused"),
	}
}

// starting is an updater that does something before its first step.
type starting struct {
	parallel.Updater
	start func() // nil afterwards
}

func (s *starting) Begin(step int) {
	if s.start != nil {
		s.start()
		s.start = nil
	}
	s.Updater.Begin(step)
}

// dropMoments clears the moments before the first step, after they were loaded,
// on all ranks.
func dropMoments() fault.Fault {
	return fault.OnUpdater(fault.Every, func(be kernels.Backend, u parallel.Updater) parallel.Updater {
		return &starting{u, func() {
			for _, held := range u.Shards() {
				for _, m := range held.M {
					be.Fill(m, 0)
				}
			}
		}}
	})
}

// initialHead leaves a rank of the last stage, which has no embedding, with the
// initial weights of its tied head when the first step begins.
func initialHead(rank int) fault.Fault {
	return fault.OnUpdater(rank, func(be kernels.Backend, u parallel.Updater) parallel.Updater {
		h := &initial{Updater: u, be: be}
		return &starting{h, h.restore}
	})
}

// initial is an updater that remembers its initial weights of a tied head.
type initial struct {
	parallel.Updater
	be   kernels.Backend
	head [][]float32
}

func (h *initial) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	if err := h.Updater.Init(ctx, fill); err != nil {
		return err
	}
	_, weights := h.Tied(true)
	for _, w := range weights {
		x := make([]float32, w.Len())
		if err := h.be.Read(x, w); err != nil {
			return err
		}
		h.head = append(h.head, x)
	}
	return nil
}

func (h *initial) restore() {
	_, weights := h.Tied(true)
	for i, w := range weights {
		h.be.Write(w, h.head[i])
	}
}

// shiftData gives every rank the sequences of another step.
func shiftData(by int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		s.Step += by
		return s.Do()
	})
}
