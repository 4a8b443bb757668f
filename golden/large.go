package golden

import (
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Large are golden runs of few steps on models whose products fill the tiles of
// fast kernels and whose chains are longer than a block of one, which the
// fixtures' are not. Their batches are small, so that the plain Go of kernels/ref,
// which recorded them, needs minutes. Some logical workers have no sequence.
func Large() ([]Variant, error) {
	var out []Variant
	for _, v := range []struct {
		config           string
		steps, sequences int
		clip             float64 // within the gradient norms of the steps
	}{
		{"5M", 3, 4, 6},
		{"50M", 2, 2, 23.5},
	} {
		cfg, err := spec.Preset(v.config)
		if err != nil {
			return nil, err
		}
		cfg.Steps, cfg.Sequences = v.steps, v.sequences
		cfg.Optimizer = optim.Config{Name: "adamw", Clip: v.clip, Warmup: 1, Horizon: FingerprintSteps}
		cfg.Recording = spec.Recording{Digests: true, KeepGoing: true}
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		out = append(out, Variant{v.config + "-adamw-untied", cfg})
	}
	return out, nil
}
