package suite_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	det "github.com/lockstep-ml/lockstep/contracts/det/suite"
)

// TestLevelsOfLargeModels: the level that takes seconds runs none of them, the
// next all that the backend can train in minutes, the last all; with as many
// steps as were recorded.
func TestLevelsOfLargeModels(t *testing.T) {
	for _, c := range []struct {
		level   int
		backend string
		want    []string
	}{
		{1, "cpu", nil},
		{2, "cpu", []string{"golden 5M-adamw-untied 3", "golden 50M-adamw-untied 2"}},
		{2, "ref", []string{"golden 5M-adamw-untied 3"}},
		{3, "ref", []string{"golden 5M-adamw-untied 3", "golden 50M-adamw-untied 2"}},
	} {
		o := contracttest.Options()
		o.Level, o.Backend = c.level, c.backend
		var got []string
		for _, cs := range det.Suite().Cases(o) {
			if strings.Contains(cs.Name, "M-") {
				got = append(got, cs.Name+" "+string(rune('0'+cs.Runs["test"].Config.Steps)))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("level %d on %s: %v, want %v", c.level, c.backend, got, c.want)
		}
	}
}
