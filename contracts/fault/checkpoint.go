package fault

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Stored is what a checkpoint holds, whoever wrote which part of it.
type Stored struct {
	Manifest checkpoint.Manifest
	// Elements are those of whole logical tensors, row by row: by kind (weight and
	// moments), then by parameter.
	Elements map[string]map[string][]float32
}

// Load reads the checkpoint of a step below root.
func Load(root string, step int) (*Stored, error) {
	c, err := checkpoint.Open(filepath.Join(root, checkpoint.DirName(step)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &Stored{Manifest: c.Manifest, Elements: map[string]map[string][]float32{}}
	err = s.each(func(what string, p *model.Param, r checkpoint.Rect) error {
		if s.Elements[what] == nil {
			s.Elements[what] = map[string][]float32{}
		}
		x := make([]float32, r.Len())
		s.Elements[what][p.Name] = x
		return c.Read(r, x)
	})
	return s, err
}

// each calls f for every tensor that the checkpoint of the manifest's run holds.
func (s *Stored) each(f func(what string, p *model.Param, r checkpoint.Rect) error) error {
	cfg, err := spec.Parse(s.Manifest.Spec)
	if err != nil {
		return err
	}
	l := model.NewLayout(cfg.Model, model.Whole(cfg.Model))
	for what := range s.Manifest.Digests {
		for i := range l.Params {
			p := &l.Params[i]
			if p.Off >= l.Owned {
				continue
			}
			r := checkpoint.Rect{What: what, Tensor: p.Name, R: shard.Range{Hi: p.Rows}, C: shard.Range{Hi: p.Cols}}
			if err := f(what, p, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// Store replaces the checkpoint of the manifest's step below root by one file
// with all elements, and makes sizes, hashes and digests agree.
func (s *Stored) Store(root string) error {
	var rects []checkpoint.Rect
	var all [][]float32
	digests := map[string]kernels.Digest{}
	err := s.each(func(what string, p *model.Param, r checkpoint.Rect) error {
		x, d := s.Elements[what][p.Name], digests[what]
		rects, all = append(rects, r), append(all, x)
		for i, v := range x {
			a, b := kernels.Mix(p.ID, uint64(i), uint64(kernels.Bits(v)))
			d.Add(kernels.Digest{A: a, B: b})
		}
		digests[what] = d
		return nil
	})
	if err != nil {
		return err
	}
	m := s.Manifest
	f, err := checkpoint.Save(checkpoint.Pending(root, m.Step), 0, rects, checkpoint.Metadata(m.Step, m.Counter),
		func(i int) ([]float32, error) { return all[i], nil })
	if err != nil {
		return err
	}
	m.Digests, m.Files = digests, []checkpoint.File{f}
	return checkpoint.Complete(root, m)
}

// ForgetMoments stores moments of 0 in the checkpoint of a step.
func ForgetMoments(root string, step int) error {
	s, err := Load(root, step)
	if err != nil {
		return err
	}
	for what, tensors := range s.Elements {
		for _, x := range tensors {
			if what != trace.Weight {
				clear(x)
			}
		}
	}
	return s.Store(root)
}

// MixSteps takes the parameters whose names are selected from the checkpoint of
// the step before.
func MixSteps(selected func(name string) bool) func(root string, step int) error {
	return func(root string, step int) error {
		s, err := Load(root, step)
		if err != nil {
			return err
		}
		older, err := Load(root, step-1)
		if err != nil {
			return err
		}
		for what, tensors := range s.Elements {
			for name, x := range tensors {
				if selected(name) {
					copy(x, older.Elements[what][name])
				}
			}
		}
		return s.Store(root)
	}
}

// Recount stores another number of optimizer steps in the checkpoint of a step.
func Recount(of func(m checkpoint.Manifest) int) func(root string, step int) error {
	return func(root string, step int) error {
		s, err := Load(root, step)
		if err != nil {
			return err
		}
		s.Manifest.Counter = of(s.Manifest)
		return s.Store(root)
	}
}

// Reseal makes a manifest's sizes and hashes those of the files as they are:
// what a reader that checks nothing sees.
func Reseal(dir string) error {
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

// atStart calls f once on one rank (on all, if rank is negative), for each of its
// model parts, before the first step.
func atStart(p *launch.Parts, rank int, f func(rank int, u parallel.Updater)) {
	onUpdater(p, func(r int, u parallel.Updater) parallel.Updater {
		if rank >= 0 && r != rank {
			return u
		}
		return &starting{Updater: u, rank: r, f: f}
	})
}

type starting struct {
	parallel.Updater
	rank    int
	f       func(rank int, u parallel.Updater)
	started bool
}

func (s *starting) Begin(step int) {
	if !s.started {
		s.started = true
		s.f(s.rank, s.Updater)
	}
	s.Updater.Begin(step)
}

// DropMoments clears the moments before the first step, after they were loaded,
// on all ranks.
func DropMoments() Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		atStart(p, -1, func(rank int, u parallel.Updater) {
			for _, piece := range u.Pieces() {
				for _, m := range piece.M {
					memory.of(rank).Fill(m, 0)
				}
			}
		})
	}
}

// initial is an updater that remembers its initial weights of a tied head.
type initial struct {
	parallel.Updater
	be      func() kernels.Backend
	head    [][]float32
	started bool
}

func (h *initial) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	if err := h.Updater.Init(ctx, fill); err != nil {
		return err
	}
	_, weights := h.Tied(true)
	for _, w := range weights {
		x := make([]float32, w.Len())
		if err := h.be().Read(x, w); err != nil {
			return err
		}
		h.head = append(h.head, x)
	}
	return nil
}

func (h *initial) Begin(step int) {
	if !h.started {
		h.started = true
		_, weights := h.Tied(true)
		for i, w := range weights {
			h.be().Write(w, h.head[i])
		}
	}
	h.Updater.Begin(step)
}

// InitialHead leaves a rank of the last stage, which has no embedding, with the
// initial weights of its tied head when the first step begins.
func InitialHead(rank int) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onUpdater(p, func(r int, u parallel.Updater) parallel.Updater {
			if r != rank {
				return u
			}
			return &initial{Updater: u, be: func() kernels.Backend { return memory.of(r) }}
		})
	}
}

// ShiftData gives every rank the sequences of another step.
func ShiftData(by int) Fault {
	return func(p *launch.Parts) {
		onSource(p, func(_ int, s train.Source) train.Source {
			return sourceFunc(func(step, worker, workers int) ([]data.Sequence, []int64) {
				return s.Sequences(step+by, worker, workers)
			})
		})
	}
}
