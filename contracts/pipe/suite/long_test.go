package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	pipe "github.com/lockstep-ml/lockstep/contracts/pipe/suite"
)

func TestLong(t *testing.T) {
	var r contracttest.Runner
	r.Long(t, pipe.Suite())
}
