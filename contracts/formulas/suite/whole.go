package suite

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// wholly lists a case that has a sequence of a configuration's whole length, where the
// configuration's own case, which must fit the time of a level, has shorter ones: of
// the model itself, else of a narrow one with its heads' width, its angles and its
// epsilon, as long as there is time for.
func wholly(o suite.Options) []fixture {
	full, err := suite.Preset(o.Config, o, steps)
	if err != nil {
		return nil // the configuration's own case says so
	}
	own := full
	if _, lacks := fit(&own, o); lacks != "" || own.Model.SeqLen == full.Model.SeqLen {
		return nil
	}
	one := full.Model
	one.Layers = own.Model.Layers
	if positions(one) > 2*work(o.Level) {
		one = narrow(one, 2*work(o.Level))
	}
	return []fixture{{
		config: o.Config, suffix: fmt.Sprintf(" in a sequence of %d of %d tokens", one.SeqLen, full.Model.SeqLen), clauses: []string{values}, whole: true,
		change: func(c *spec.Config) { c.Model, c.Sequences, c.Blank, c.Steps = one, 1, nil, 2 },
	}}
}

// positions is the work of a step of one sequence: parameters and keys times tokens.
func positions(m model.Config) int64 {
	t := int64(m.SeqLen)
	return t * (m.Params() + int64(m.Layers)*int64(m.QDim())*t)
}

// narrow leaves of a model what makes its positions, two heads or one, in as many
// tokens as the work allows.
func narrow(m model.Config, most int64) model.Config {
	m.Layers, m.Vocab, m.Hidden, m.Intermediate, m.KVHeads = 1, 256, 16, 16, 1
	m.Heads, m.Groups = min(2, m.Heads), model.Groups{Tensor: 1, Data: 1}
	if positions(m) > most {
		m.Heads = 1
	}
	for positions(m) > most {
		m.SeqLen = m.SeqLen * 7 / 8
	}
	return m
}
