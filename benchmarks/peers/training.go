package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/benchmarks/step"
	"github.com/lockstep-ml/lockstep/benchmarks/turns"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// dataGroups is the number of logical workers of the trainings: with the
// model's own tensor groups, what plans of as many ranks give.
const dataGroups = 4

// training is a model and batch to train beside PyTorch.
type training struct {
	config    string
	sequences int
	// rounds caps the number of measurements: a step of a large model takes
	// seconds.
	rounds int
}

func trainings() []training {
	return []training{{"5M", 4, 100}, {"50M", 1, 9}, {"50M", 4, 5}}
}

// compareTraining prints the rows of all trainings on a number of threads.
func compareTraining(o options, b *cpu.Backend, p *turns.Peer, threads int) error {
	for _, t := range trainings() {
		cfg, err := spec.Preset(t.config)
		if err != nil {
			return err
		}
		groups := model.Groups{Tensor: cfg.Model.Groups.Tensor, Data: dataGroups}
		if cfg, err = step.Config(t.config, groups, t.sequences); err != nil {
			return err
		}
		name := fmt.Sprintf("training %s B%d T%d G%d D%d", t.config, t.sequences, cfg.Model.SeqLen, groups.Tensor, groups.Data)
		if !strings.Contains(name, o.match) {
			continue
		}
		if err := measureTraining(name, cfg, b, p, threads, min(o.rounds, t.rounds)); err != nil {
			return err
		}
	}
	return nil
}

// measureTraining takes steps of both in turn, several at a time where they are
// short, and prints a row: time per step and tokens per second, and at its end
// the ratio in processor time, for one thread the fairest on a busy machine.
func measureTraining(name string, cfg spec.Config, b kernels.Backend, p *turns.Peer, threads, rounds int) error {
	m := &cfg.Model
	request := fmt.Sprintf("train %d %d %d %d %d %d %d %d %d", m.Vocab, m.Hidden, m.Layers, m.Heads, m.KVHeads, m.HeadDim, m.Intermediate, m.SeqLen, cfg.Sequences)
	first, err := p.Ask(request, 1)
	if err != nil {
		return err
	}
	ours, err := step.Start(cfg, b)
	if err != nil {
		return err
	}
	defer ours.Close()
	reps := max(1, int(3e8/first))
	var failed error
	var usedX, usedY []float64 // processor time
	x, y := turns.Alternate(rounds, func() float64 {
		var sum, cpu time.Duration
		for range reps {
			d, u, err := ours.Step()
			failed = cmp.Or(failed, err)
			sum, cpu = sum+d, cpu+u
		}
		usedX = append(usedX, float64(cpu.Nanoseconds())/float64(reps))
		return float64(sum.Nanoseconds()) / float64(reps)
	}, func() float64 {
		ns, err := p.Ask(request, reps)
		used, err2 := p.Ask("used", 0)
		usedY = append(usedY, used)
		failed = cmp.Or(failed, err, err2)
		return ns
	})
	if failed != nil {
		return errors.Join(failed, fmt.Errorf("%s", name))
	}
	tokens := float64(cfg.Sequences * m.SeqLen)
	rate := func(ns []float64) string { return fmt.Sprintf("%.0f tok/s", tokens/median(ns)*1e9) }
	fmt.Printf("%-34s %7d %12.0f %12.0f %10s %10s %7.2f %7.2f  cpu %.2f\n", name, threads, median(x)/1e3, median(y)/1e3,
		rate(x), rate(y), median(turns.Ratios(y, x)), slices.Min(y)/slices.Min(x), median(turns.Ratios(usedY, usedX)))
	return nil
}
