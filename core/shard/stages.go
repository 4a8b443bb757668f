package shard

import "fmt"

// Stages gives p pipeline stages consecutive blocks by the shard rule: the first
// blocks mod p stages have one more. A stage without a block is refused. The
// embedding belongs to the first stage, final norm and head to the last.
func Stages(blocks, p int) ([]Range, error) {
	if err := checkStages(blocks, p); err != nil {
		return nil, err
	}
	out := make([]Range, p)
	for s := range out {
		out[s] = Part{s, p}.Of(blocks)
	}
	return out, nil
}

func checkStages(blocks, p int) error {
	if p < 1 {
		return fmt.Errorf("pipeline: %d stages: must be at least 1", p)
	}
	if p > blocks {
		return fmt.Errorf("pipeline: %d stages for %d blocks: every stage must have a block", p, blocks)
	}
	return nil
}

// StageCosts are the costs of a step's parts, in one unit of the caller's
// choice: nanoseconds, or multiply-adds. (A head of a large vocabulary costs as much
// as several blocks.)
type StageCosts struct {
	Blocks      []uint64
	Embed, Head uint64 // Head is that of final norm and head
}

// each is the cost by block, the embedding's with the first block's, the
// head's with the last's: every stage has a block, so this changes no stage.
func (c StageCosts) each() ([]uint64, error) {
	out := append([]uint64(nil), c.Blocks...)
	var k checked
	out[0] = k.add(out[0], c.Embed)
	out[len(out)-1] = k.add(out[len(out)-1], c.Head)
	sum := uint64(0)
	for _, x := range out {
		sum = k.add(sum, x)
	}
	return out, k.err("pipeline: cost of all stages")
}

// WeightedStages splits the blocks into p runs of consecutive blocks, none
// empty, such that the largest cost of a stage is the least possible; among
// those splits, that the smallest is the largest possible; and among those, that
// the first stages have the most blocks. With equal costs it is Stages. It takes
// at most p*len(c.Blocks)^2 steps, mostly far fewer.
func WeightedStages(c StageCosts, p int) ([]Range, error) {
	n := len(c.Blocks)
	if err := checkStages(n, p); err != nil {
		return nil, err
	}
	cost, err := c.each()
	if err != nil {
		return nil, err
	}
	most := leastMost(cost, p)
	table := splits(cost, p, most)
	least := table[p][0].least
	out := make([]Range, 0, p)
	for lo, left := 0, p-1; left >= 0; left-- {
		hi, sum := lo, uint64(0)
		for i := lo + 1; i <= n-left; i++ {
			if sum += cost[i-1]; sum > most {
				break
			}
			if rest := table[left][i]; rest.ok && rest.least >= least {
				hi = i // some hi has sum >= least, so the last has
			}
		}
		out = append(out, Range{lo, hi})
		lo = hi
	}
	return out, nil
}

// leastMost is the smallest bound that the costs of p runs can keep: the
// smallest under which runs as long as the bound allows are at most p. (Longer
// runs can always be cut, as there are at least p blocks.)
func leastMost(cost []uint64, p int) uint64 {
	lo, hi := uint64(0), uint64(0)
	for _, x := range cost {
		lo, hi = max(lo, x), hi+x
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		runs, sum := 1, uint64(0)
		for _, x := range cost {
			if x > mid-sum {
				runs, sum = runs+1, 0
			}
			sum += x
		}
		if runs <= p {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// split is what can be said of all splits of some last blocks into some number
// of runs: the largest possible least cost of a run, if there is a split at all.
type split struct {
	least uint64
	ok    bool
}

// splits holds, by number of runs and by first block, the splits of which no
// run costs more than most.
func splits(cost []uint64, p int, most uint64) [][]split {
	n := len(cost)
	table := make([][]split, p+1)
	for k := range table {
		table[k] = make([]split, n+1)
	}
	table[0][n] = split{^uint64(0), true}
	for k := 1; k <= p; k++ {
		for i := n - k; i >= 0; i-- {
			best, sum := &table[k][i], uint64(0)
			for hi := i + 1; hi <= n-k+1; hi++ {
				if sum += cost[hi-1]; sum > most {
					break
				}
				if rest := table[k-1][hi]; rest.ok && (!best.ok || min(sum, rest.least) > best.least) {
					*best = split{min(sum, rest.least), true}
				}
			}
		}
	}
	return table
}

// VirtualStages gives p stages v chunks each: chunk c of stage s is virtual
// stage c*p+s of Stages(blocks, p*v), so a micro-batch passes the stages v times
// in the same order. The result is by stage, then by chunk. The embedding
// belongs to chunk 0 of the first stage, the head to the last chunk of the last.
func VirtualStages(blocks, p, v int) ([][]Range, error) {
	return interleaved(p, v, blocks, func(n int) ([]Range, error) { return Stages(blocks, n) })
}

// WeightedVirtualStages is VirtualStages over WeightedStages(c, p*v).
func WeightedVirtualStages(c StageCosts, p, v int) ([][]Range, error) {
	return interleaved(p, v, len(c.Blocks), func(n int) ([]Range, error) { return WeightedStages(c, n) })
}

func interleaved(p, v, blocks int, split func(n int) ([]Range, error)) ([][]Range, error) {
	if err := checkStages(blocks, p); err != nil {
		return nil, err
	}
	if v < 1 || v > blocks/p {
		return nil, fmt.Errorf("pipeline: %d chunks on each of %d stages for %d blocks: every chunk must have a block", v, p, blocks)
	}
	flat, err := split(p * v)
	if err != nil {
		return nil, err
	}
	out := make([][]Range, p)
	for i, r := range flat {
		out[i%p] = append(out[i%p], r)
	}
	return out, nil
}

// VirtualStage is the virtual stage of a chunk of one of p stages.
func VirtualStage(stage, chunk, p int) int { return chunk*p + stage }

// StageBalance is the balance of a split, by stage. stages is what VirtualStages
// returns, or one range per stage; it must cover the blocks in order.
func StageBalance(c StageCosts, stages [][]Range) (Balance, error) {
	p := len(stages)
	if p == 0 || len(c.Blocks) == 0 {
		return Balance{}, fmt.Errorf("pipeline: %d stages, %d blocks: %w", p, len(c.Blocks), ErrEmpty)
	}
	cost, err := c.each()
	if err != nil {
		return Balance{}, err
	}
	loads := make([]uint64, p)
	next, v := 0, len(stages[0])
	for i := range p * v {
		s, chunk := i%p, i/p
		if len(stages[s]) != v || stages[s][chunk].Lo != next || stages[s][chunk].Hi < next || stages[s][chunk].Hi > len(cost) {
			return Balance{}, fmt.Errorf("pipeline: chunk %d of stage %d: want %d chunks on every stage, and one that starts at block %d", chunk, s, v, next)
		}
		for ; next < stages[s][chunk].Hi; next++ {
			loads[s] += cost[next]
		}
	}
	if next != len(cost) {
		return Balance{}, fmt.Errorf("pipeline: the stages end at block %d of %d", next, len(cost))
	}
	return balanceOf(loads)
}
