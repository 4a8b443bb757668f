package dryrun

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/schedule/simulator"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Stage is what a pipeline stage holds, as its first tensor-parallel rank cuts
// it over the data-parallel ranks.
type Stage struct {
	Layers [][2]int `json:"layers"` // half-open, by chunk
	First  bool     `json:"first"`  // holds the embedding
	Last   bool     `json:"last"`   // holds final norm and head
	// Work is the multiply-adds of a token's forward pass, of all tensor-parallel
	// ranks, attention over the mean number of keys included.
	Work  uint64 `json:"work"`
	Units []Unit `json:"units"`
	// Maps say by chunk how the plan's block map shares the units out.
	Maps []Map `json:"maps,omitempty"`
	// Blocks is what the blocks' all-reduces over tensor-parallel ranks move, for
	// the first data-parallel rank.
	Blocks *AllReduces `json:"blocks,omitempty"`
}

// Unit is what is sharded as a whole: data-parallel rank i owns the elements
// from Bounds[i] to Bounds[i+1] of it. Without Bounds every rank owns all.
type Unit struct {
	Name     string `json:"name"`
	Elements int    `json:"elements"`
	Bounds   []int  `json:"bounds,omitempty"`
	// Gradient marks the second gradient of a tied embedding, which has no
	// optimizer state of its own.
	Gradient bool `json:"gradient_only,omitempty"`
}

// Schedule is the pipeline schedule with what it costs.
type Schedule struct {
	Name   string `json:"name"`
	Chunks int    `json:"chunks"`
	// IdleShare is the share of all stages' time in which none of their passes
	// runs, of equal stages, simulated. Formula is what it should be, a lower bound
	// unless FormulaExact.
	IdleShare    float64 `json:"idle_share"`
	Formula      float64 `json:"idle_share_formula"`
	FormulaExact bool    `json:"idle_share_formula_exact"`
	// Live is, by stage, the most micro-batches whose forward pass on the stage has
	// begun and whose backward pass there has not ended, those of all chunks
	// together; LiveFormula is its bound.
	Live        []int `json:"live"`
	LiveFormula []int `json:"live_formula"`
	// WorkMaxOverMean is the balance of Work over stages; BestMaxOverMean that of
	// the best assignment of consecutive layers.
	WorkMaxOverMean float64  `json:"work_max_over_mean"`
	BestMaxOverMean float64  `json:"best_work_max_over_mean"`
	Warnings        []string `json:"warnings,omitempty"`
	// Drawing shows which pass a stage runs in each slot, for few stages and
	// micro-batches.
	Drawing string `json:"drawing,omitempty"`
}

// held counts buffers of a chunk at their most: micro-batches with activations,
// and activations on their way between stages.
type held struct{ acts, edges int }

// schedule makes the plan's schedule and returns what each chunk holds, by stage
// and chunk.
func (b *builder) schedule() ([][]held, error) {
	if b.dims.PP == 1 {
		return [][]held{{{acts: 1}}}, nil
	}
	s, err := schedule.Named(b.cfg.Plan.Schedule, b.cfg.Plan.PP, b.cfg.Plan.Virtual, b.cfg.Plan.MicroBatches)
	if err != nil {
		return nil, err
	}
	equal, err := simulator.Run(s, simulator.Costs{}, simulator.Rendezvous)
	if err != nil {
		return nil, err
	}
	f := s.Figures()
	b.report.Schedule = &Schedule{Name: s.Name, Chunks: s.Chunks, IdleShare: equal.IdleShare(), Formula: f.IdleShare, FormulaExact: f.Exact,
		Live: equal.PeakLive, LiveFormula: f.PeakLive, Warnings: s.Warnings(), Drawing: draw(s)}
	if err := b.weigh(s); err != nil {
		return nil, err
	}
	out := make([][]held, len(s.Stages))
	for i, list := range s.Stages {
		out[i] = heldBy(list, s.Chunks, b.dims.PP, i)
	}
	return out, nil
}

// weigh judges the assignment of layers to stages by their work.
func (b *builder) weigh(s schedule.Schedule) error {
	c := &b.cfg.Model
	costs := shard.StageCosts{Blocks: make([]uint64, c.Layers), Head: headWork(c)}
	for i := range costs.Blocks {
		costs.Blocks[i] = blockWork(c)
	}
	best, err := shard.WeightedVirtualStages(costs, b.dims.PP, s.Chunks)
	if err != nil {
		return err
	}
	plain, err := shard.VirtualStages(c.Layers, b.dims.PP, s.Chunks)
	if err != nil {
		return err
	}
	now, err := shard.StageBalance(costs, plain)
	if err != nil {
		return err
	}
	possible, err := shard.StageBalance(costs, best)
	if err != nil {
		return err
	}
	out := b.report.Schedule
	out.WorkMaxOverMean, out.BestMaxOverMean = now.MaxOverMean, possible.MaxOverMean
	return nil
}

// blockWork is the multiply-adds of a token in a block: projections, and scores
// and values of (T+1)/2 keys on average.
func blockWork(c *model.Config) uint64 {
	h, q := uint64(c.Hidden), uint64(c.QDim())
	return 2*h*(q+uint64(c.KVDim())) + 3*h*uint64(c.Intermediate) + q*uint64(c.SeqLen+1)
}

func headWork(c *model.Config) uint64 { return uint64(c.Vocab) * uint64(c.Hidden) }

func work(c *model.Config, p model.Part) uint64 {
	w := uint64(p.Layers.Len()) * blockWork(c)
	if p.Last {
		w += headWork(c)
	}
	return w
}

// heldBy walks one stage's actions. Activations exist from the receive of the
// input, or from the forward pass of the first stage, to the backward pass; the
// gradient of the output from its receive to the backward pass, and that of the
// input from there to its send.
func heldBy(list []schedule.Action, chunks, stages, stage int) []held {
	now, peak := make([]held, chunks), make([]held, chunks)
	for _, a := range list {
		n, v := &now[a.Chunk], shard.VirtualStage(stage, a.Chunk, stages)
		first, last := v == 0, v == chunks*stages-1
		switch a.Kind {
		case schedule.RecvForward:
			n.acts++
		case schedule.Forward:
			if first {
				n.acts++
			}
		case schedule.RecvBackward:
			n.edges++
		case schedule.Backward:
			n.acts--
			if !last {
				n.edges--
			}
			if !first {
				n.edges++
			}
		case schedule.SendBackward:
			n.edges--
		}
		p := &peak[a.Chunk]
		p.acts, p.edges = max(p.acts, n.acts), max(p.edges, n.edges)
	}
	return peak
}

// stage describes a stage by the chunks of its first tensor-parallel rank.
func (b *builder) stage(pp int, chunks []chunk) (Stage, error) {
	var s Stage
	for i := range chunks {
		l := &chunks[i].layout
		s.Layers = append(s.Layers, [2]int{l.Part.Layers.Lo, l.Part.Layers.Hi})
		s.First, s.Last = s.First || l.Part.First, s.Last || l.Part.Last
		s.Work += work(&b.cfg.Model, l.Part)
		for j := range chunks[i].buckets {
			bucket := &chunks[i].buckets[j]
			s.Units = append(s.Units, Unit{Name: bucket.Name, Elements: bucket.Len(), Bounds: bucket.Bounds, Gradient: bucket.Source})
		}
	}
	var err error
	if s.Maps, err = b.maps(chunks); err == nil {
		s.Blocks, err = b.allReduces(chunks)
	}
	return s, err
}

// maxDrawn bounds the slots of a drawing.
const maxDrawn = 40

// draw shows a schedule with equal passes and free transfers: a row per stage, a
// column per slot, F3 the forward and B3 the backward pass of micro-batch 3, a
// letter for the chunk where there are several.
func draw(s schedule.Schedule) string {
	slots := 2*s.Chunks*s.Micros + 2*s.Chunks*(len(s.Stages)-1)
	if len(s.Stages) > 8 || s.Chunks > 4 || slots > maxDrawn {
		return ""
	}
	rows := make([][]string, len(s.Stages))
	next := make([]int, len(s.Stages))
	ends := map[string]int{} // the slot after a pass, by name
	for moved := true; moved; {
		moved = false
		for stage, list := range s.Stages {
			for next[stage] < len(list) && place(s, stage, list[next[stage]], &rows[stage], ends) {
				next[stage]++
				moved = true
			}
		}
	}
	var out strings.Builder
	for stage, row := range rows {
		fmt.Fprintf(&out, "stage %d ", stage)
		for _, cell := range row {
			fmt.Fprintf(&out, "%-4s", cell)
		}
		out.WriteByte('\n')
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// passName names a pass of a virtual stage.
func passName(k schedule.Kind, virtual, micro int) string {
	return fmt.Sprint(k, virtual, "/", micro)
}

// place puts an action into its slot if what it needs has one.
func place(s schedule.Schedule, stage int, a schedule.Action, row *[]string, ends map[string]int) bool {
	p := len(s.Stages)
	v := shard.VirtualStage(stage, a.Chunk, p)
	letter, need := "F", ""
	switch a.Kind {
	case schedule.Forward:
		if v > 0 {
			need = passName(schedule.Forward, v-1, a.Micro)
		}
	case schedule.Backward:
		letter = "B"
		if v < p*s.Chunks-1 {
			need = passName(schedule.Backward, v+1, a.Micro)
		}
	default:
		return true // transfers are free: passes wait for each other
	}
	begin := len(*row)
	if need != "" {
		end, ok := ends[need]
		if !ok {
			return false
		}
		begin = max(begin, end)
	}
	for len(*row) < begin {
		*row = append(*row, ".")
	}
	name := fmt.Sprint(letter, a.Micro)
	if s.Chunks > 1 {
		name += string(rune('a' + a.Chunk))
	}
	*row = append(*row, name)
	ends[passName(a.Kind, v, a.Micro)] = begin + 1
	return true
}
