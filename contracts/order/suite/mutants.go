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
func into(f fault.Fault) func(*suite.Case) {
	return func(c *suite.Case) {
		maps.DeleteFunc(c.Runs, func(role contract.Role, _ suite.Run) bool { return role != contract.Test && role != contract.Control })
		fault.Into(contract.Test, f)(c)
	}
}

// mutants are broken runs, at least one per clause. Most give the right bits
// wherever the machine is quick enough.
func mutants() []suite.Mutant {
	clear := func(be kernels.Backend, g kernels.Tensor) { be.Fill(g, 0) }
	read := func(be kernels.Backend, g kernels.Tensor) { be.SumSquares(&kernels.SquareSum{}, g) }
	return []suite.Mutant{
		{ID: "summed-as-ranks-come", Clause: "C-ORDER-001.1", On: "nano dp=4", Break: into(asTheyCome()),
			Says: "a reduction adds the ranks in the order in which they come, as atomic additions do"},
		{ID: "reduction-not-awaited", Clause: "C-ORDER-001.2", On: "nano dp=4", Break: into(unawaited(names.DP, overlapped(names.OpAllReduce))),
			Says: "the step goes on while gradients are still reduced: nobody waits for the all-reduces (deepspeedai/DeepSpeed#7898)"},
		{ID: "gradient-cleared-while-reduced", Clause: "C-ORDER-001.2", On: "nano dp=4", Break: into(beforeFinish(1, clear)),
			Says: "one rank writes its gradients again before their reduction is awaited (deepspeedai/DeepSpeed#7371, NVIDIA/Megatron-LM#5222)"},
		{ID: "gradient-read-while-reduced", Clause: "C-ORDER-001.2", On: "nano dp=4", Break: into(beforeFinish(2, read)),
			Says: "one rank looks at its gradients before their reduction is awaited; nothing comes of it but what it saw"},
		{ID: "gather-not-awaited", Clause: "C-ORDER-001.2", On: "nano dp=2,zero=3", Break: into(unawaited(names.DP, overlapped(names.OpAllGather))),
			Says: "weights that are gathered ahead are used before they are there (ByteDance-Seed/VeOmni#419)"},
		{ID: "broadcast-not-awaited", Clause: "C-ORDER-001.2", On: "odd dp=3,zero=3,shard=tensors", Break: into(unawaited(names.DP, overlapped(names.OpBroadcast))),
			Says: "whole tensors that come from their owners are used before they are there"},
		{ID: "gathered-and-given-back", Clause: "C-ORDER-001.2", On: "nano dp=2,zero=3", Break: into(gatheredAndGivenBack(1, model.BlockUnit(1))),
			Says: "weights that were gathered ahead are given back before their use"},
		{ID: "activation-given-back", Clause: "C-ORDER-001.2", On: "nano dp=2,zero=2", Break: into(givenBack(1, 9)),
			Says: "an activation is given back while the passes still need it"},
		{ID: "published-late", Clause: "C-ORDER-001.2", On: "odd dp=2,zero=1,shard=balanced", Break: into(unawaited(names.DP, published)),
			Says: "the next step begins while the updated weights still arrive"},
		{ID: "send-not-awaited", Clause: "C-ORDER-001.2", On: "odd dp=1,pp=3", Break: into(unawaitedMessages(names.OpSend)),
			Says: "a buffer between stages is used again while it is sent"},
		{ID: "receive-not-awaited", Clause: "C-ORDER-001.2", On: "nano dp=1,pp=2,schedule=interleaved,virtual=2", Break: into(unawaitedMessages(names.OpRecv)),
			Says: "a stage computes on what it has not received yet"},
		{ID: "reductions-wait-for-the-loss", Clause: "C-ORDER-001.3", On: "nano dp=4", Break: into(afterTheLoss(1)),
			Says: "one rank calls the operations of two groups in another order than its peers: each waits for the other (pytorch/pytorch#172668)"},
	}
}
