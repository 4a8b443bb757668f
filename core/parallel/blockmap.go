package parallel

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/model"
)

func blockSegments(kind string, l *model.Layout, dp int) ([]Segment, error) {
	return nil, fmt.Errorf("shard=%s", kind)
}

func tensorSegments(l *model.Layout, dp int) []Segment { return nil }
