package kernels

import "testing"

// bare is a backend that does nothing but count.
type bare struct {
	Backend
	list []Routine
}

func (b bare) Tally() []Routine { return b.list }

type hiding struct{ Backend }

type showing struct{ Backend }

func (s showing) Unwrap() Backend { return s.Backend }

// TestTallierOf: a tally is found through decorators that show what they
// decorate, the outermost first, and not through others.
func TestTallierOf(t *testing.T) {
	inner, outer := bare{list: []Routine{{"inner", 1}}}, []Routine{{"outer", 2}}
	for _, c := range []struct {
		name string
		b    Backend
		want string
	}{
		{"bare", inner, "inner"},
		{"shown", showing{showing{inner}}, "inner"},
		{"hidden", hiding{inner}, ""},
		{"hidden further in", showing{hiding{inner}}, ""},
		{"another on top", showing{bare{showing{inner}, outer}}, "outer"},
		{"none", showing{}, ""},
		{"nil", nil, ""},
	} {
		got := ""
		if found, ok := TallierOf(c.b); ok {
			got = found.Tally()[0].Name
		}
		if got != c.want {
			t.Errorf("%s: the tally of %q, want %q", c.name, got, c.want)
		}
	}
}
