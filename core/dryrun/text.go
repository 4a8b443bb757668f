package dryrun

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-ml/lockstep/core/names"
)

// maxBounds is the number of ranks up to which bounds are printed one by one.
const maxBounds = 8

// Text prints the report for people.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	promise := "another answer than the single worker's: dp does not divide the logical workers, or comm is not tree"
	switch {
	case len(r.Notes) > 0:
		promise = "planned only"
	case r.Exact:
		promise = "the bits of the single worker"
	}
	fmt.Fprintf(&b, "%s, %d parameters, plan %s on %d ranks\n", r.Model, r.Parameters, r.Plan, r.World)
	fmt.Fprintf(&b, "%d logical workers, %s\n", r.Workers, promise)
	fmt.Fprintf(&b, "%d sequences of %d tokens a step; per data-parallel rank %d micro-batches of at most %d sequences\n",
		r.Sequences, r.TokensPerSequence, r.MicroBatches, r.SequencesPerMicroBatch)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	r.stages(&b)
	r.tensor(&b)
	r.schedule(&b)
	r.memory(&b)
	r.traffic(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// table aligns the rows that f writes, cells ended by tabs, numbers to the right.
func table(b *strings.Builder, f func(w io.Writer)) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	f(w)
	w.Flush() // a strings.Builder never fails
}

func (r *Report) stages(b *strings.Builder) {
	b.WriteString("\nStages and sharding units (elements of tensor-parallel rank 0)\n")
	for i, s := range r.Stages {
		var layers []string
		for _, l := range s.Layers {
			layers = append(layers, fmt.Sprintf("%d to %d", l[0], l[1]-1))
		}
		fmt.Fprintf(b, "stage %d: layers %s", i, strings.Join(layers, ", "))
		if s.First {
			b.WriteString(", embedding")
		}
		if s.Last {
			b.WriteString(", final norm and head")
		}
		fmt.Fprintf(b, "; %d multiply-adds per token forward\n", s.Work)
		for _, lines := range alike(s.Units) {
			fmt.Fprintf(b, "  %s\n", lines)
		}
		for _, m := range s.Maps {
			fmt.Fprintf(b, "  block map: ranks hold %s of the optimizer state, most over mean %.4f", fractions(m.Fractions), m.MaxOverMean)
			if len(m.Idle) > 0 {
				fmt.Fprintf(b, ", %d without any", len(m.Idle))
			}
			b.WriteByte('\n')
		}
		if x := s.Blocks; x != nil {
			fmt.Fprintf(b, "  all-reduces of blocks over tp, for a data-parallel rank: %d a step of %d bytes together; all ranks send %d, the busiest %d\n", x.Times, x.Logical, x.Wire, x.Busiest)
		}
	}
}

// alike describes units, runs of equally cut ones in one line.
func alike(units []Unit) []string {
	var out []string
	for i := 0; i < len(units); {
		j := i + 1
		for j < len(units) && units[j].Elements == units[i].Elements && slices.Equal(units[j].Bounds, units[i].Bounds) {
			j++
		}
		name := units[i].Name
		if j > i+1 {
			name += " to " + units[j-1].Name + ", each"
		}
		out = append(out, name+": "+units[i].cut())
		i = j
	}
	return out
}

func (u *Unit) cut() string {
	s := fmt.Sprintf("%d elements", u.Elements)
	if u.Gradient {
		s += " of gradient"
	}
	n := len(u.Bounds) - 1
	switch {
	case n < 0:
		return s + " on every rank"
	case u.owner() >= 0:
		return fmt.Sprintf("%s, owner %d", s, u.owner())
	case n <= maxBounds:
		return fmt.Sprintf("%s, bounds %v", s, u.Bounds)
	}
	most, least := u.Bounds[1]-u.Bounds[0], u.Bounds[n]-u.Bounds[n-1]
	return fmt.Sprintf("%s, %d shards of %d to %d", s, n, least, most)
}

// owner is the rank that has all elements, where others have none; else -1.
func (u *Unit) owner() int {
	if len(u.Bounds) <= 2 || u.Elements == 0 {
		return -1
	}
	for i := range len(u.Bounds) - 1 {
		if u.Bounds[i+1]-u.Bounds[i] == u.Elements {
			return i
		}
	}
	return -1
}

// fractions prints the ranks' shares, of many ranks the least and the most.
func fractions(shares []float64) string {
	switch least, most := slices.Min(shares), slices.Max(shares); {
	case least == most:
		return fmt.Sprintf("%.4f each", most)
	case len(shares) > maxBounds:
		return fmt.Sprintf("from %.4f to %.4f", least, most)
	}
	var out []string
	for _, f := range shares {
		out = append(out, fmt.Sprintf("%.4f", f))
	}
	return strings.Join(out, ", ")
}

// tensor describes the cut of tensor parallelism.
func (r *Report) tensor(b *strings.Builder) {
	t := r.Tensor
	if t == nil {
		return
	}
	fmt.Fprintf(b, "\nTensor parallelism: ranks hold %s of the weights, biases apart\n", fractions(t.Fractions))
	for _, s := range t.Slices {
		fmt.Fprintf(b, "  %s, %s: %dx%d of %dx%d on the first rank\n", s.Name, s.Layer, s.Shape[0], s.Shape[1], s.Full[0], s.Full[1])
	}
}

// saved prints how much of the optimizer state ZeRO saves the ranks.
func (r *Report) saved(b *strings.Builder) {
	var shares []float64
	for _, k := range r.Ranks {
		if k.Saved != nil {
			shares = append(shares, k.Saved.Share)
		}
	}
	if len(shares) > 0 {
		fmt.Fprintf(b, "optimizer state saved: from %.4f to %.4f of what a rank would hold, %.4f with equal shards\n",
			slices.Min(shares), slices.Max(shares), r.Ranks[0].Saved.Ideal)
	}
}

func (r *Report) schedule(b *strings.Builder) {
	s := r.Schedule
	if s == nil {
		return
	}
	same := ""
	if s.FormulaExact {
		same = ", as its formula says"
	}
	fmt.Fprintf(b, "\nSchedule %s, %d chunks per stage\n", s.Name, s.Chunks)
	fmt.Fprintf(b, "idle: %.4f of the time of equal stages%s\n", s.IdleShare, same)
	fmt.Fprintf(b, "work of the busiest stage over the mean %.4f (best possible %.4f)\n", s.WorkMaxOverMean, s.BestMaxOverMean)
	fmt.Fprintf(b, "live: most micro-batches between their forward and backward pass, by stage %v (bound %v)\n", s.Live, s.LiveFormula)
	for _, w := range s.Warnings {
		b.WriteString(w + "\n")
	}
	b.WriteString(s.Drawing)
}

// maxRows bounds the kinds of ranks that are printed one by one.
const maxRows = 64

func (r *Report) memory(b *strings.Builder) {
	b.WriteString("\nBytes per rank\n")
	table(b, func(w io.Writer) {
		fmt.Fprintln(w, "stage\tranks\tfirst\tweights\tgradients\tmoments\tfull grad\tgathered\tstate\tbuffers\tactivations\twork\ttotal\tGiB\tsent per step\t")
		for _, k := range r.Ranks[:min(maxRows, len(r.Ranks))] {
			m, sent := &k.Memory, int64(0)
			for _, n := range k.Sent {
				sent += n
			}
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t\n", k.Stage, k.Count, k.First, m.Weights, m.Gradients, m.Moments,
				m.FullGradient, m.Gathered, m.State, m.Buffers, m.Activations, m.Work, m.Total, inGiB(m.Total), sent)
		}
	})
	if n := len(r.Ranks) - maxRows; n > 0 {
		fmt.Fprintf(b, "and %d more kinds of ranks\n", n)
	}
	b.WriteString("buffers: for activations of micro-batches; each chunk keeps as many as it ever needs, from the receipt of an input on\n")
	for _, s := range []struct {
		what string
		Spread
	}{{"state", r.State}, {"total", r.Memory}} {
		fmt.Fprintf(b, "%s: from %s to %s, most over mean %.4f\n", s.what, sized(s.Least), sized(s.Most), s.MaxOverMean)
	}
	fmt.Fprintf(b, "all ranks together: %s\n", sized(r.Bytes))
	r.saved(b)
	b.WriteString("Estimates of the most that a rank would need; this program trains in float32 and keeps all activations\n")
	for _, e := range []struct {
		what  string
		bytes int64
	}{{"bf16, with float32 weights to update", r.Estimates.BF16}, {"recomputation of blocks", r.Estimates.Recompute}, {"both", r.Estimates.Both}} {
		fmt.Fprintf(b, "  %s: about %s\n", e.what, sized(e.bytes))
	}
}

// sized writes bytes, and beside them in GiB.
func sized(bytes int64) string { return fmt.Sprintf("%d (%s GiB)", bytes, inGiB(bytes)) }

// inGiB writes bytes in GiB, to four digits that count.
func inGiB(bytes int64) string {
	x := float64(bytes) / gib
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

func (r *Report) traffic(b *strings.Builder) {
	b.WriteString("\nCommunication per step, all ranks together\n")
	if len(r.Traffic) == 0 {
		b.WriteString("none\n")
		return
	}
	table(b, func(w io.Writer) {
		fmt.Fprintln(w, "group\toperation\twhat\ttimes\tbytes\t")
		sums := map[names.Axis]int64{}
		for _, t := range r.Traffic {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t\n", t.Group, t.Op, t.What, t.Times, t.Bytes)
			sums[t.Group] += t.Bytes
		}
		for _, g := range groupOrder() {
			if n, ok := sums[g]; ok {
				fmt.Fprintf(w, "%s\tall\t\t\t%d\t\n", g, n)
			}
		}
	})
}
