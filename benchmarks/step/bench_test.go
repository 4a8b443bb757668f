package step_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/benchmarks/step"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// BenchmarkTraining times a step (forward, backward, AdamW) of 5M on 4 sequences
// of 128 tokens and of 50M on one of 512, with the model's own tensor groups.
func BenchmarkTraining(b *testing.B) {
	for _, c := range []struct {
		config    string
		sequences int
	}{{"5M", 4}, {"50M", 1}} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads%d", c.config, threads), func(b *testing.B) { training(b, c.config, c.sequences, threads) })
		}
	}
}

func training(b *testing.B, name string, sequences, threads int) {
	m, err := model.Named(name)
	if err != nil {
		b.Fatal(err)
	}
	cfg, err := step.Config(name, model.Groups{Tensor: m.Groups.Tensor, Data: 4}, sequences)
	if err != nil {
		b.Fatal(err)
	}
	backend, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	t, err := step.Start(cfg, backend)
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	for b.Loop() {
		if _, _, err := t.Step(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(sequences*cfg.Model.SeqLen*b.N)/b.Elapsed().Seconds(), "tokens/s")
}
