package train_test

import "testing"

// Every way to share out a state gives the same bits, alone and in products.
func TestOneAnswerOfEverySharding(t *testing.T) {
	for name, plans := range map[string][]string{
		"nano": {
			"dp=8,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=2,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors",
			"dp=2,tp=2,zero=1,shard=round-robin", "dp=2,pp=2,zero=1,shard=balanced", "dp=2,pp=2,tp=2,zero=3,shard=tensors,microbatches=8", "dp=2,pp=2,zero=3", "dp=2,pp=2,zero=2", "dp=4,pp=2,zero=1",
			"dp=2,pp=2,zero=3,schedule=interleaved,virtual=2",
		},
		"odd": {
			"dp=4,zero=1,shard=round-robin", "dp=2,zero=1,shard=contiguous", "dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors", "dp=2,zero=3,shard=tensors,microbatches=4",
			"dp=2,tp=4,zero=1,shard=balanced,vocab=parallel", "dp=4,pp=2,zero=1,shard=balanced", "dp=2,pp=3,zero=1,shard=contiguous", "dp=2,pp=2,tp=2,zero=3,shard=tensors", "dp=4,pp=4,zero=3", "dp=2,pp=2,zero=2,microbatches=4", "dp=4,pp=2,zero=1",
			"dp=2,pp=2,zero=3,shard=tensors,schedule=interleaved,virtual=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := config(t, name, "")
			one.Model.SeqLen = 11 // the state is what matters here
			sameAnswer(t, one, plans)
		})
	}
}
