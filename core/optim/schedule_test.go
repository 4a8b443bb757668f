package optim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"strings"
	"testing"
)

// valid is a configuration after Validate.
func valid(t *testing.T, c Config) Config {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestScheduleAtItsCorners(t *testing.T) {
	c := valid(t, Config{LR: 1, Warmup: 4, Horizon: 20, MinLR: 0.25})
	for _, p := range []struct {
		t    int
		want float64
	}{
		{0, 0.25}, {1, 0.5}, {3, 1}, // warm-up: LR*(t+1)/Warmup
		{4, 1},      // the cosine starts at its top
		{12, 0.625}, // half way: the mean of LR and MinLR
		{8, 0.25 + 0.375*(1+math.Sqrt2/2)},
		{16, 0.25 + 0.375*(1-math.Sqrt2/2)},
		{20, 0.25}, {21, 0.25}, {1 << 40, 0.25},
	} {
		// A few roundings of numbers below 1, and a cosine good to an ulp.
		if got := c.At(p.t); math.Abs(got-p.want) > 4*0x1p-53 {
			t.Errorf("step %d: learning rate %v, want %v", p.t, got, p.want)
		}
	}
}

func TestScheduleWithoutItsParts(t *testing.T) {
	for _, p := range []struct {
		c    Config
		t    int
		want float64
	}{
		{Config{LR: 0.5}, 0, 0.5}, // neither warm-up nor decay
		{Config{LR: 0.5}, 1 << 40, 0.5},
		{Config{LR: 0.5, Warmup: 1}, 0, 0.5},
		{Config{LR: 0.5, Warmup: 3}, 3, 0.5}, // constant after the warm-up
		{Config{LR: 0.5, Horizon: 8}, 0, 0.5},
		{Config{LR: 0.5, Horizon: 1}, 1, 0},
	} {
		c := valid(t, p.c)
		if got := c.At(p.t); got != p.want {
			t.Errorf("%+v, step %d: learning rate %v, want %v", p.c, p.t, got, p.want)
		}
	}
}

func TestScheduleFallsAfterWarmup(t *testing.T) {
	c := valid(t, Config{LR: 3e-4, Warmup: 100, Horizon: 5000, MinLR: 3e-5})
	for i := 1; i < 5100; i++ {
		a, b := c.At(i-1), c.At(i)
		if i < 100 && b <= a || i >= 100 && b > a || b > c.LR || (i >= 100 && b < c.MinLR) {
			t.Fatalf("step %d: learning rate %v after %v", i, b, a)
		}
	}
}

// The bits of 10,000 learning rates: the same for every GOAMD64 level and every
// architecture, since golden weights depend on them.
func TestLearningRatesPinned(t *testing.T) {
	c := valid(t, Config{LR: 3e-4, Warmup: 137, Horizon: 9001, MinLR: 1e-5})
	h := fnv.New64a()
	for i := range 10000 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(c.At(i)))
		h.Write(b[:])
	}
	if got, want := h.Sum64(), uint64(0x3ab85b3f4a6260f0); got != want {
		t.Errorf("hash of the learning rates %#016x, want %#016x", got, want)
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, p := range []struct {
		c    Config
		says string
	}{
		{Config{Name: "adam"}, `optimizer "adam": known are adamw, sgd`},
		{Config{Warmup: -1}, "warmup=-1"},
		{Config{Horizon: -2}, "horizon=-2"},
		{Config{Warmup: 5, Horizon: 5}, "warmup=5, horizon=5"},
	} {
		if err := p.c.Validate(); err == nil || !strings.Contains(err.Error(), p.says) {
			t.Errorf("%+v: got %v, want an error that says %q", p.c, err, p.says)
		}
	}
}

// TestValidateRefusesNumbers: every real number of a configuration has values that
// mean nothing, under either optimizer, and values at the ends of its range that do.
func TestValidateRefusesNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	never := []float64{nan, inf, -inf, -1e-300, -0.1, -0x1p-149, 0x1p-127, 1e-300}
	rates := []float64{1, math.Nextafter(1, 0), 1 - 0x1p-25, 1.5}
	fields := map[string]struct {
		field  func(*Config) *float64
		no, ok []float64
	}{
		"lr":       {func(c *Config) *float64 { return &c.LR }, []float64{-1, 1.1e6}, []float64{0x1p-126, 1e6}},
		"eps":      {func(c *Config) *float64 { return &c.Eps }, []float64{-1, 1.1}, []float64{0x1p-126, 1}},
		"decay":    {func(c *Config) *float64 { return &c.Decay }, []float64{-2, -0.999, 1.1e6}, []float64{-1, 0x1p-126, 1e6}},
		"clip":     {func(c *Config) *float64 { return &c.Clip }, []float64{-1, 1.1e30}, []float64{0x1p-126, 1e30}},
		"min_lr":   {func(c *Config) *float64 { return &c.MinLR }, []float64{-1, 1.1e-3}, []float64{0x1p-126, 1e-3}},
		"beta1":    {func(c *Config) *float64 { return &c.Beta1 }, append(rates, -1), []float64{0x1p-126, 1 - 0x1p-24}},
		"beta2":    {func(c *Config) *float64 { return &c.Beta2 }, append(rates, -1), []float64{0x1p-126, 1 - 0x1p-24}},
		"momentum": {func(c *Config) *float64 { return &c.Momentum }, append(rates, -1), []float64{0x1p-126, 1 - 0x1p-24}},
	}
	for name, f := range fields {
		for _, optimizer := range []string{"adamw", "sgd"} {
			with := func(v float64) (Config, error) {
				c := Config{Name: optimizer}
				*f.field(&c) = v
				return c, c.Validate()
			}
			for _, v := range append(f.no, never...) {
				if (name == "beta1" || name == "beta2" || name == "momentum") && v > 0 && v < 0x1p-126 {
					continue // as good as none, which it says
				}
				want := fmt.Sprintf("optimizer %s: %s=%v: must lie", optimizer, name, v)
				if c, err := with(v); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%+v: got %v, want an error that says %q", c, err, want)
				}
			}
			for _, v := range f.ok {
				if _, err := with(v); err != nil {
					t.Errorf("%s=%v: %v", name, v, err)
				}
			}
		}
	}
	c := reflect.TypeFor[Config]()
	reals := 0
	for i := range c.NumField() {
		if f := c.Field(i); f.Type.Kind() == reflect.Float64 {
			reals++
			if _, ok := fields[f.Tag.Get("json")]; !ok && !strings.Contains(f.Tag.Get("json"), "omitempty") {
				t.Errorf("no values of %s are tried", f.Name)
			}
		}
	}
	if reals != len(fields) {
		t.Errorf("%d real numbers, of %d values are tried", reals, len(fields))
	}
}

// A recorded configuration is validated again when it is replayed: that must
// not change it.
func TestValidateTwiceIsValidateOnce(t *testing.T) {
	for _, c := range []Config{{}, {Name: "sgd"}, {Decay: -1}, {Name: "sgd", Decay: -1}, {Decay: 0.3, Clip: 1, Warmup: 2, Horizon: 9}} {
		once := valid(t, c)
		if twice := valid(t, once); twice != once {
			t.Errorf("%+v: validated %+v, validated again %+v", c, once, twice)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, p := range []struct{ c, want Config }{
		{Config{}, Config{Name: "adamw", LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Momentum: 0.9, Decay: 0.1}},
		{Config{Name: "sgd", LR: 2}, Config{Name: "sgd", LR: 2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Momentum: 0.9}},
	} {
		if got := valid(t, p.c); got != p.want {
			t.Errorf("defaults of %+v are %+v, want %+v", p.c, got, p.want)
		}
	}
}

func TestClipCoef(t *testing.T) {
	inf, eps := math.Inf(1), 1e-6
	for _, p := range []struct{ norm, clip, want float64 }{
		{0, 0, 1}, {1e30, 0, 1}, {5, -1, 1}, // no clipping
		{0, 1, 1}, {0.5, 1, 1}, // below the bound
		{1, 1, 1 / (1 + eps)}, // at the bound the 1e-6 already counts
		{1 - eps, 1, 1},
		{4, 1, 1 / (4 + eps)},
		{2, 1e-300, 1e-300 / (2 + eps)},
		{inf, 1, 0}, {math.MaxFloat64, 1, 1 / math.MaxFloat64},
		{math.NaN(), 1, 1}, // no step is taken with such a norm
	} {
		if got := ClipCoef(p.norm, p.clip); got != p.want {
			t.Errorf("norm %v, clip %v: factor %v, want %v", p.norm, p.clip, got, p.want)
		}
	}
}

func ExampleConfig_At() {
	c := Config{LR: 1, Warmup: 2, Horizon: 6}
	if err := c.Validate(); err != nil {
		fmt.Println(err)
	}
	for t := range 7 {
		fmt.Printf("%.3f ", c.At(t))
	}
	// Output: 0.500 1.000 1.000 0.854 0.500 0.146 0.000
}
