package suite

import (
	"maps"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// into breaks a case's test run and leaves out those by other schedules: a fault
// must show under whichever schedule it meets.
func into(f fault.Fault) func(*suite.Case) { return byOne(fault.Into(contract.Test, f)) }

// byOne is a break of a case that leaves out the runs by other schedules than the test
// run's.
func byOne(change func(*suite.Case)) func(*suite.Case) {
	return func(c *suite.Case) {
		maps.DeleteFunc(c.Runs, func(role contract.Role, _ suite.Run) bool { return role != contract.Test && role != contract.Control })
		change(c)
	}
}

// mutants are broken runs, at least one per clause. Most give the right bits
// wherever the machine is quick enough.
func mutants() []suite.Mutant {
	const some = suite.Any // a finding is of who comes second, by the schedule
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-ORDER-001." + clause, On: on, Break: into(f), Says: says}
	}
	clear := func(be kernels.Backend, g kernels.Tensor) { be.Fill(g, 0) }
	read := func(be kernels.Backend, g kernels.Tensor) { be.SumSquares(&kernels.SquareSum{}, g) }
	return append([]suite.Mutant{
		m("summed-as-ranks-come", "1", "nano dp=4", at(some, 0, "digest grad"), asTheyCome(),
			"a reduction adds the ranks in the order in which they come, as atomic additions do"),
		m("reduction-not-awaited", "2", "nano dp=4", at(some, 0, "all-reduce of"), unawaited(names.DP, overlapped(names.OpAllReduce)),
			"the step goes on while gradients are still reduced: nobody waits for the all-reduces (deepspeedai/DeepSpeed#7898)"),
		m("gradient-cleared-while-reduced", "2", "nano dp=4", at(some, 0, "rank 1 (Fill, which writes)"), beforeFinish(1, clear),
			"one rank writes its gradients again before their reduction is awaited (deepspeedai/DeepSpeed#7371, NVIDIA/Megatron-LM#5222)", "B035", "B038"),
		m("gradient-read-while-reduced", "2", "nano dp=4", at(some, 0, "rank 2 (SumSquares, which reads)"), beforeFinish(2, read),
			"one rank looks at its gradients before their reduction is awaited; nothing comes of it but what it saw"),
		m("gather-not-awaited", "2", "nano dp=2,zero=3", at(some, 0, "all-gather of"), unawaited(names.DP, overlapped(names.OpAllGather)),
			"weights that are gathered ahead are used before they are there (ByteDance-Seed/VeOmni#419)"),
		m("broadcast-not-awaited", "2", "odd dp=3,zero=3,shard=tensors", at(some, some, "broadcast of"), unawaited(names.DP, overlapped(names.OpBroadcast)),
			"whole tensors that come from their owners are used before they are there"),
		m("gathered-and-given-back", "2", "nano dp=2,zero=3", at(1, 0, "memory of rank 1, which was given up"), gatheredAndGivenBack(1, model.BlockUnit(1)),
			"weights that were gathered ahead are given back before their use"),
		m("activation-given-back", "2", "nano dp=2,zero=2", at(1, 0, "memory of rank 1, which was given up"), givenBack(1, 9),
			"an activation is given back while the passes still need it"),
		m("published-late", "2", "odd dp=2,zero=1,shard=balanced", at(some, 0, "broadcast of"), unawaited(names.DP, published),
			"the next step begins while the updated weights still arrive", "B039"),
		m("send-not-awaited", "2", "odd dp=1,pp=3", at(some, 0, "in recv of"), unawaitedMessages(names.OpSend),
			"a buffer between stages is used again while it is sent"),
		m("receive-not-awaited", "2", "nano dp=1,pp=2,schedule=interleaved,virtual=2", at(some, 0, "in send of"), unawaitedMessages(names.OpRecv),
			"a stage computes on what it has not received yet"),
		m("weights-not-finite", "2", "nano dp=2,zero=2", at(1, 1, "elements of weight are not finite"), arrivesLost(1, 1),
			"weights that the other rank updated arrive on one rank with an element that is not finite, after the last step"),
		m("moments-not-finite", "2", "nano dp=2,zero=2", at(1, 1, "elements of m are not finite"), afterUpdate(1, 1, func(u *fault.Update) kernels.Tensor { return u.Moments[0] }),
			"the last update leaves a first moment that is not finite, beside weights that are right"),
		m("moments-not-finite-early", "2", "nano dp=2,zero=2", at(1, 0, "elements of m are not finite"), afterUpdate(0, 1, func(u *fault.Update) kernels.Tensor { return u.Moments[0] }),
			"the first update does, on the last rank: all that is not finite elsewhere comes of it"),
		m("norm-left-out", "3", "nano dp=4", at(2, 0, "rank 2 did not come to all-reduce-int of norm"), leftOut(2, fault.Norms),
			"one rank leaves out one all-reduce of the norm: the others wait for it there, it waits for them at the next operation of another group (facebookresearch/optimizers#149)", "B006"),
		m("send-left-out", "3", "odd dp=1,pp=3", at(some, 0, "rank 0 called recv of 350 elements from rank 1, rank 1 called recv of 350 elements from rank 0"), leftOut(0, sends),
			"the first stage leaves out a send: the next one waits for it, and it for what comes back (pytorch/pytorch#109401)"),
		m("lengths-differ", "3", "nano dp=4", at(some, some, "ranks 0, 2, 3 called all-reduce of 8224 elements (sum); rank 1 called all-reduce of 8223 elements"), shorter(1),
			"one rank leaves the last element out of a reduction, by a length of its own: its peers would read beyond its buffer (deepspeedai/DeepSpeed#5794)"),
		m("forward-panics", "3", "nano dp=2,zero=2", at(1, 0, "step 0: Forward of micro-batch 0"), panics(1),
			"one rank breaks down in its forward pass, by an index out of range: its peers end at once (pytorch/pytorch#101463)", "L01"),
		m("reductions-wait-for-the-loss", "3", "nano dp=4", at(1, 0, "rank 1 did not come to all-reduce of final"), afterTheLoss(1),
			"one rank calls the operations of two groups in another order than its peers: each waits for the other (pytorch/pytorch#172668)"),
	}, alone(fault.Scalars(contract.Test, "C-ORDER-001.1", "nano dp=2,zero=2", " of rank"))...)
}

// alone makes mutants do without the runs by other schedules, as into does.
func alone(all []suite.Mutant) []suite.Mutant {
	for i := range all {
		all[i].Break = byOne(all[i].Break)
	}
	return all
}
