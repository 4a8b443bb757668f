package ckpt

import (
	"math"
	"strings"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// Field is a field of the configuration that a manifest records.
type Field struct {
	Path  string // "optimizer.lr"
	Other any    // a value that the damaged checkpoint's run may have, but has not
	// May says why a run that goes on may have another value. Where it is empty a
	// checkpoint with another value is refused, by the path.
	May string
}

// Why a field may differ.
const (
	anyPlan  = "a run goes on under any plan"
	recorded = "what is recorded changes nothing"
)

// Fields lists all fields. Numbers differ by as little as they can.
func Fields() []Field {
	next := func(x float64) float64 { return math.Nextafter(x, math.Inf(1)) }
	const least = 0x1p-126
	return []Field{
		{"model.name", "micro", ""}, {"model.vocab", 257, ""}, {"model.hidden", 33, ""}, {"model.layers", 2, ""}, {"model.heads", 16, ""},
		{"model.kv_heads", 8, ""}, {"model.head_dim", 10, ""}, {"model.intermediate", 68, ""}, {"model.seq_len", 3, ""},
		{"model.tied", true, ""}, {"model.qkv_bias", true, ""}, {"model.linear_bias", true, ""}, {"model.norm_eps", next(1e-5), ""},
		{"model.rope_theta", next(10000), ""}, {"model.init_std", next(0.1), ""}, {"model.init_bias", least, ""},
		{"model.groups.tensor", 2, ""}, {"model.groups.data", 4, ""},
		{"optimizer.name", "sgd", ""}, {"optimizer.lr", next(1e-3), ""}, {"optimizer.beta1", next(0.9), ""}, {"optimizer.beta2", next(0.95), ""},
		{"optimizer.eps", next(1e-8), ""}, {"optimizer.momentum", next(0.9), ""}, {"optimizer.decay", next(0.1), ""}, {"optimizer.clip", next(3.1), ""},
		{"optimizer.warmup", 5, ""}, {"optimizer.horizon", 21, ""}, {"optimizer.min_lr", least, ""},
		{"sequences", 3, ""}, {"blank", []int{1}, ""}, {"last_step", "pad", ""}, {"text_hash", strings.Repeat("0", 64), ""},
		{"seed", uint64(1<<32 + 1), ""}, // of which 32 bits are those of 1

		{"plan.dp", 1, anyPlan}, {"plan.tp", 2, anyPlan}, {"plan.pp", 1, anyPlan}, {"plan.zero", 1, anyPlan}, {"plan.shard", "balanced", anyPlan},
		{"plan.microbatches", 8, anyPlan}, {"plan.schedule", "gpipe", anyPlan}, {"plan.virtual", 1, anyPlan}, {"plan.vocab", "parallel", anyPlan},
		{"plan.comm", "ring", anyPlan},
		{"text", "another name", "the text is known by its hash"}, {"steps", spec.MaxSteps, "a run goes on for as long as it is asked to"},
		{"backend", "cpu", "all backends give the same bits"},
		{"evidence.digests", true, recorded}, {"evidence.workers", true, recorded}, {"evidence.capture", true, recorded},
		{"evidence.taps", true, recorded}, {"evidence.start", true, recorded}, {"evidence.keep_going", true, recorded},
	}
}

// Otherwise names the damage that is none: all fields that may differ do.
const Otherwise = "of a run that differs where it may"

// configurations are the damages of the recorded configuration.
func configurations(dir string) []Damage {
	out := []Damage{{Name: Otherwise}}
	for _, f := range Fields() {
		if f.May == "" {
			out = append(out, Damage{Name: OfAnother(f.Path), File: dir, Says: f.Path})
		}
	}
	return out
}

// OfAnother names the damage of a field.
func OfAnother(path string) string { return "of another " + path }
