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
	File string // that a refusal must name; empty: the change says nothing, and is none
	Says string // what it must say besides
}

// Damages lists what is done.
func Damages() []Damage {
	a, b := checkpoint.FileName(0), checkpoint.FileName(1)
	dir, manifest := checkpoint.DirName(2), checkpoint.ManifestName
	return append(configurations(dir), []Damage{
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
		{Name: "manifest of another digest of m", File: dir, Says: "digest"},
		{Name: "manifest of another digest of v", File: dir, Says: "digest"},
		{Name: "manifest of another format", File: manifest, Says: "schema"},
		{Name: "manifest of the next format", File: manifest, Says: "schema"},
		{Name: "manifest of a later format", File: manifest, Says: "schema"},
		{Name: "manifest of another arithmetic", File: manifest, Says: "arithmetic"},
		{Name: "manifest of the next arithmetic", File: manifest, Says: "arithmetic"},
		{Name: "manifest of a later arithmetic", File: manifest, Says: "arithmetic"},
		{Name: "left out of the manifest", File: dir},
		{Name: "longer by an element and the hash repaired", File: b, Says: "ends at"},
		{Name: "cut short by an element and the hash repaired", File: b, Says: "the file has"},
		{Name: "an element stored twice and the hash repaired", File: b, Says: "twice"},
		{Name: "an element stored in place of another and the hash repaired", File: b, Says: "twice"},
		{Name: "a tensor in two files and the hash repaired", File: b, Says: a},
		{Name: "a tensor more and the hash repaired", File: b, Says: "no tensor"},
		{Name: "a gap between tensors and the hash repaired", File: b, Says: "starts at"},
		{Name: "two tensors of the same data and the hash repaired", File: b, Says: "starts at"},
		{Name: "a type of the same size and the hash repaired", File: b, Says: "I32"},
		{Name: "an entry twice in the header and the hash repaired", File: b, Says: "twice"},
		{Name: "a field twice in the metadata and the hash repaired", File: b, Says: "twice"},
		{Name: "a field more in the metadata and the hash repaired", File: b, Says: "metadata"},
		{Name: "a blank in the metadata and the hash repaired", File: b, Says: "says step"},
		{Name: "a blank before the header and the hash repaired", File: b, Says: "must begin"},
		{Name: "a blank in the header", File: b},
		{Name: "a link to the same file elsewhere", File: b, Says: "regular"},
		{Name: "listed twice", File: b, Says: "listed twice"},
		{Name: "manifest of another size", File: b, Says: "bytes"},
		{Name: "manifest with a field twice", File: manifest, Says: "twice"},
		{Name: "manifest with a field twice in another case", File: manifest, Says: "twice"},
		{Name: "manifest of another step", File: manifest, Says: "another step"},
		{Name: "after the last step", File: checkpoint.DirName(9), Says: "after step 9"},
		{Name: "blanks in the header and the hash repaired"},
		{Name: "tensors in another order in the header and the hash repaired"},
		{Name: "blanks in the manifest"},
	}...)
}

// refused is clause 5: each damage is refused by the name of the file, and a
// checkpoint without damage is not. The manifest's hashes cover every byte of the
// other files. White space between the tokens of a manifest, or of a header that its
// hash agrees with, and the order of entries say nothing: that is no damage.
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
		case d.File == "" && e.Text != "":
			p.At(-1, e.Step).Report(e.Text, nil, "a checkpoint is refused that says what it said: %s", d.Name)
		case d.File == "":
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
