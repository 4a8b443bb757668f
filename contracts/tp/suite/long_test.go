package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	tp "github.com/lockstep-ml/lockstep/contracts/tp/suite"
)

func TestLong(t *testing.T) {
	var r contracttest.Runner
	r.Long(t, tp.Suite())
}
