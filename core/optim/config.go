package optim

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/num"
)

// Config says how parameters are updated. A field's zero value is the default
// its comment names.
type Config struct {
	Name     string  `json:"name"`     // "adamw" (default) or "sgd"
	LR       float64 `json:"lr"`       // peak learning rate; 0 is 1e-3
	Beta1    float64 `json:"beta1"`    // AdamW; 0 is 0.9
	Beta2    float64 `json:"beta2"`    // AdamW; 0 is 0.95
	Eps      float64 `json:"eps"`      // AdamW; 0 is 1e-8
	Momentum float64 `json:"momentum"` // SGD; 0 is 0.9
	// Decay is the weight decay of matrices; vectors (norm weights, biases) are
	// never decayed. NoDecay is none, 0 is 0.1 for AdamW and none for SGD.
	Decay float64 `json:"decay"`
	// Clip is the largest global gradient norm; 0 clips nothing (the norm is
	// computed all the same).
	Clip float64 `json:"clip,omitempty"`
	// Warmup is the number of optimizer steps of linear warm-up; step t of them
	// has LR*(t+1)/Warmup.
	Warmup int `json:"warmup,omitempty"`
	// Horizon is the optimizer step at which the cosine reaches MinLR; 0 keeps
	// LR constant after the warm-up.
	Horizon int     `json:"horizon,omitempty"`
	MinLR   float64 `json:"min_lr,omitempty"`
}

// Validate fills defaults and refuses values outside their range, naming both.
func (c *Config) Validate() error {
	if c.Name == "" {
		c.Name = "adamw"
	}
	if c.Name != "adamw" && c.Name != "sgd" {
		return fmt.Errorf("optimizer %q: known are adamw, sgd", c.Name)
	}
	for _, d := range []struct {
		dst *float64
		def float64
	}{{&c.LR, 1e-3}, {&c.Beta1, 0.9}, {&c.Beta2, 0.95}, {&c.Eps, 1e-8}, {&c.Momentum, 0.9}} {
		if *d.dst == 0 {
			*d.dst = d.def
		}
	}
	if c.Decay == 0 && c.Name == "adamw" {
		c.Decay = 0.1
	}
	for _, r := range []struct {
		name  string
		v, hi float64
		zero  string // what 0 is where it may be that, now that defaults are filled in
	}{
		{"lr", c.LR, 1e6, ""}, {"eps", c.Eps, 1, ""}, {"decay", c.decay(), 1e6, "; -1 is none"}, {"clip", c.Clip, 1e30, "; 0 is none"},
		{"min_lr", c.MinLR, c.LR, ", or be 0"},
	} {
		if r.v != 0 && !(r.v >= least && r.v <= r.hi) {
			return fmt.Errorf("optimizer %s: %s=%v: must lie from %.3g, the least normal float32, to %v%s", c.Name, r.name, r.v, least, r.hi, r.zero)
		}
	}
	for _, r := range []struct {
		name string
		v    float64
	}{{"beta1", c.Beta1}, {"beta2", c.Beta2}, {"momentum", c.Momentum}} {
		if !(r.v > 0 && float32(r.v) < 1) {
			return fmt.Errorf("optimizer %s: %s=%v: must lie between 0 and 1, and below 1 as a float32 too", c.Name, r.name, r.v)
		}
	}
	if c.Warmup < 0 || c.Horizon < 0 || (c.Horizon > 0 && c.Horizon <= c.Warmup) {
		return fmt.Errorf("optimizer %s: warmup=%d, horizon=%d: must not be negative, and the horizon lies beyond the warm-up", c.Name, c.Warmup, c.Horizon)
	}
	return nil
}

// NoDecay is the Decay that stays none: 0 would come back as the default.
const NoDecay = -1

// least is the smallest normal float32: what backends round to less than that is
// lost in part or wholly, and nothing says so.
const least = 0x1p-126

// decay is the weight decay of matrices.
func (c *Config) decay() float64 {
	if c.Decay == NoDecay {
		return 0
	}
	return c.Decay
}

// At is the learning rate of optimizer step t (from 0): linear warm-up, then a
// cosine from LR to MinLR at Horizon. It depends on t alone, so a resumed run
// continues it.
func (c *Config) At(t int) float64 {
	switch {
	case t < c.Warmup:
		return float64(c.LR*float64(t+1)) / float64(c.Warmup)
	case c.Horizon == 0:
		return c.LR
	case t >= c.Horizon:
		return c.MinLR
	}
	x := float64(t-c.Warmup) / float64(c.Horizon-c.Warmup)
	return c.MinLR + float64(float64(0.5*(c.LR-c.MinLR))*(1+num.Cos(float64(pi*x))))
}

const pi = 3.14159265358979323846
