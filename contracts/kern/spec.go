package kern

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels/drill"
)

// Spec is what the history of a drill of kernels has in its header: it determines
// the cases.
type Spec struct {
	Kernels []string `json:"kernels"` // methods of kernels.Kernels, drill.Memory, drill.Misuse
	Seed    uint64   `json:"seed"`
	Level   int      `json:"level"` // of package kernels/drill
}

// Check refuses what no drill has.
func (s Spec) Check() error {
	if s.Level < 1 || s.Level > 2 {
		return fmt.Errorf("drill of kernels of level %d: must be 1 or 2", s.Level)
	}
	if len(s.Kernels) == 0 {
		return errors.New("drill of kernels: names no kernel")
	}
	for i, k := range s.Kernels {
		if !slices.ContainsFunc(Families(), func(f Family) bool { return slices.Contains(f.Kernels, k) }) || slices.Contains(s.Kernels[:i], k) {
			return fmt.Errorf("drill of kernels: %q is no kernel, or there twice", k)
		}
	}
	return nil
}

// Cases lists what the drill runs.
func (s Spec) Cases() []*drill.Case {
	return drill.Cases(drill.Options{Seed: s.Seed, Level: s.Level, Only: s.Kernels})
}

// Family is a set of kernels that one run drills and one clause judges.
type Family struct {
	Name    string // of the case
	Clause  string // "C-KERN-001.1"
	Kernels []string
}

// Families divide everything that is drilled.
func Families() []Family {
	return []Family{
		{"matrix products", id + ".1", []string{"MatMulNT", "MatMulNN", "MatMulTN"}},
		{"norms and embeddings", id + ".2", []string{"RMSNorm", "RMSNormGrad", "Rope", "Embedding", "EmbeddingGrad"}},
		{"attention", id + ".3", []string{"Attention", "AttentionGrad"}},
		{"gates and loss", id + ".4", []string{"SwiGLU", "SwiGLUGrad", "LogitsMax", "LogitsExpSum", "CrossEntropy"}},
		{"sums and updates", id + ".5", []string{"Fill", "Copy", "Add", "Scale", "AddBias", "Residual", "ColumnSum", "Reduce", "AdamW", "SGD"}},
		{"squares and digests", id + ".6", []string{"SumSquares", "Hash", "HashChanged"}},
		{"memory", id + ".7", []string{drill.Memory, drill.Misuse}},
	}
}

// family are the kernels that a clause judges.
func family(clause string) []string {
	for _, f := range Families() {
		if f.Clause == clause {
			return f.Kernels
		}
	}
	return nil
}

// specOf reads the spec of a history.
func specOf(h *trace.History) (s Spec, err error) {
	if h.Header.Spec.Drill == nil {
		return s, fmt.Errorf("spec: %s: not of a drill", h.Header.Spec.Name())
	}
	if err := trace.Strict(h.Header.Spec.Drill, &s); err != nil {
		return s, fmt.Errorf("spec of the drill: %v", err)
	}
	return s, s.Check()
}
