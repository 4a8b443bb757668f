package suite

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// contents is what a checkpoint holds, whoever wrote which part of it.
type contents struct {
	checkpoint.Manifest
	// elements are those of whole logical tensors, row by row: by kind (weight and
	// moments), then by parameter.
	elements map[string]map[string][]float32
}

// load reads the checkpoint of a step below root.
func load(root string, step int) (*contents, error) {
	c, err := checkpoint.Open(filepath.Join(root, checkpoint.DirName(step)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &contents{c.Manifest, map[string]map[string][]float32{}}
	return s, s.each(func(p *model.Param, r checkpoint.Rect) error {
		if s.elements[r.What] == nil {
			s.elements[r.What] = map[string][]float32{}
		}
		x := make([]float32, r.Len())
		s.elements[r.What][p.Name] = x
		return c.Read(r, x)
	})
}

// each calls f for every tensor that the checkpoint of the manifest's run holds.
func (s *contents) each(f func(p *model.Param, r checkpoint.Rect) error) error {
	cfg, err := spec.Parse(s.Spec)
	if err != nil {
		return err
	}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for what := range s.Digests {
		for i := range l.Params {
			p := &l.Params[i]
			if p.Off >= l.Owned {
				continue
			}
			if err := f(p, checkpoint.Rect{What: what, Tensor: p.Name, R: shard.Range{Hi: p.Rows}, C: shard.Range{Hi: p.Cols}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// store replaces the checkpoint of the manifest's step below root by one file
// with all elements, and makes sizes, hashes and digests agree.
func (s *contents) store(root string) error {
	var rects []checkpoint.Rect
	digests := map[string]kernels.Digest{}
	err := s.each(func(p *model.Param, r checkpoint.Rect) error {
		rects = append(rects, r)
		d := digests[r.What]
		for i, v := range s.elements[r.What][p.Name] {
			a, b := kernels.Mix(p.ID, uint64(i), uint64(kernels.Bits(v)))
			d.Add(kernels.Digest{A: a, B: b})
		}
		digests[r.What] = d
		return nil
	})
	if err != nil {
		return err
	}
	m := s.Manifest
	f, err := checkpoint.Save(checkpoint.Pending(root, m.Step), 0, rects, checkpoint.Metadata(m.Step, m.Counter),
		func(i int) ([]float32, error) { return s.elements[rects[i].What][rects[i].Tensor], nil })
	if err != nil {
		return err
	}
	m.Digests, m.Files = digests, []checkpoint.File{f}
	return checkpoint.Complete(root, m)
}

// edited changes the contents of the checkpoint of a step below root.
func edited(change func(root string, s *contents) error) func(root string, step int) error {
	return func(root string, step int) error {
		s, err := load(root, step)
		if err != nil {
			return err
		}
		if err := change(root, s); err != nil {
			return err
		}
		return s.store(root)
	}
}

// forgetMoments stores moments of 0.
func forgetMoments(_ string, s *contents) error {
	for what, tensors := range s.elements {
		for _, x := range tensors {
			if what != trace.Weight {
				clear(x)
			}
		}
	}
	return nil
}

// wrapParts cuts every tensor into so many parts and stores those from n on as the
// parts n before.
func wrapParts(parts, n int) func(root string, s *contents) error {
	return func(_ string, s *contents) error {
		for _, tensors := range s.elements {
			for _, x := range tensors {
				b := shard.Bounds(len(x), parts)
				for i := n; i < parts; i++ {
					copy(x[b[i]:b[i+1]], x[b[i-n]:b[i-n+1]])
				}
			}
		}
		return nil
	}
}

// mixSteps takes the parameters whose names are selected from the checkpoint of
// the step before.
func mixSteps(selected func(name string) bool) func(root string, s *contents) error {
	return func(root string, s *contents) error {
		older, err := load(root, s.Step-1)
		if err != nil {
			return err
		}
		for what, tensors := range s.elements {
			for name, x := range tensors {
				if selected(name) {
					copy(x, older.elements[what][name])
				}
			}
		}
		return nil
	}
}

// recounted stores another number of optimizer steps.
func recounted(of func(s *contents) int) func(root string, step int) error {
	return edited(func(_ string, s *contents) error {
		s.Counter = of(s)
		return nil
	})
}

// reseal makes a manifest's sizes and hashes those of the files as they are:
// what a reader that checks nothing sees.
func reseal(dir string) error {
	path := filepath.Join(dir, checkpoint.ManifestName)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m checkpoint.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for i := range m.Files {
		x, err := os.ReadFile(filepath.Join(dir, m.Files[i].Name))
		if err != nil {
			return err
		}
		h := sha256.Sum256(x)
		m.Files[i].Bytes, m.Files[i].SHA256 = int64(len(x)), hex.EncodeToString(h[:])
	}
	if b, err = json.Marshal(m); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
