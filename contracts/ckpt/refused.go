package ckpt

import (
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Damage is something done to a checkpoint of two ranks after two steps, and the
// file that a refusal must name.
type Damage struct{ Name, File string }

// Damages lists what is done.
func Damages() []Damage {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	return []Damage{
		{"a bit of the data flipped", b},
		{"a bit of the header flipped", a},
		{"a header longer than the file", a},
		{"cut short by an element", b},
		{"empty", a},
		{"longer by an element", b},
		{"exchanged with another rank's", a},
		{"of the step before", b},
		{"removed", b},
		{"manifest cut short", checkpoint.ManifestName},
		{"manifest of another counter", a},
		{"left out of the manifest", checkpoint.DirName(2)},
	}
}

// refused is clause 5: each damage is refused by the name of the file, and a
// checkpoint without damage is not.
func refused(p *contract.Pass) {
	h, ok := p.History(contract.Test)
	if !ok {
		return
	}
	found := map[string]trace.Event{}
	for e := range h.All {
		if e.Kind == trace.KindRefusal {
			found[e.What] = e
		}
	}
	if e, ok := found[""]; p.Found(ok) && e.Text != "" {
		p.At(-1, e.Step).Report(e.Text, nil, "a checkpoint without damage is refused")
	}
	for _, d := range Damages() {
		e, ok := found[d.Name]
		if !p.Found(ok) {
			continue
		}
		switch {
		case e.Text == "":
			p.At(-1, e.Step).Report(nil, d.File,
				"a checkpoint is resumed with a file that is damaged: %s, %s", d.File, d.Name)
		case !strings.Contains(e.Text, d.File):
			p.At(-1, e.Step).Report(e.Text, d.File,
				"the refusal of a damaged checkpoint (%s) does not name the file", d.Name)
		}
	}
}
