package ckpt

import (
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Damage is something done to a checkpoint of two ranks after two steps.
type Damage struct {
	Name string
	File string // that a refusal must name
	Says string // what it must say besides
}

// Damages lists what is done.
func Damages() []Damage {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	dir, manifest := checkpoint.DirName(2), checkpoint.ManifestName
	return []Damage{
		{Name: "a bit of the data flipped", File: b},
		{Name: "a bit of the header flipped", File: a},
		{Name: "a header longer than the file", File: a},
		{Name: "cut short by an element", File: b},
		{Name: "empty", File: a},
		{Name: "longer by an element", File: b},
		{Name: "exchanged with another rank's", File: a},
		{Name: "of the step before", File: b},
		{Name: "removed", File: b},
		{Name: "a bit of the data flipped and the hash repaired", File: dir, Says: "digest"},
		{Name: "tensors exchanged and the hash repaired", File: dir, Says: "digest"},
		{Name: "manifest cut short", File: manifest},
		{Name: "manifest of another counter", File: a},
		{Name: "manifest of another digest", File: dir, Says: "digest"},
		{Name: "manifest of another format", File: manifest, Says: "schema"},
		{Name: "manifest of another arithmetic", File: manifest, Says: "arithmetic"},
		{Name: "left out of the manifest", File: dir},
		{Name: "of another text", File: dir, Says: "text_hash"},
		{Name: "of another model", File: dir, Says: "model"},
		{Name: "of another optimizer", File: dir, Says: "optimizer"},
		{Name: "of another learning rate", File: dir, Says: "optimizer"},
		{Name: "of another batch", File: dir, Says: "sequences"},
		{Name: "of another seed", File: dir, Says: "seed"},
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
		case !strings.Contains(e.Text, d.Says):
			p.At(-1, e.Step).Report(e.Text, d.Says,
				"the refusal of a damaged checkpoint (%s) does not say what is wrong", d.Name)
		}
	}
}
