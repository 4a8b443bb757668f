package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	zero "github.com/lockstep-ml/lockstep/contracts/zero/suite"
)

func TestLong(t *testing.T) {
	var r contracttest.Runner
	r.Long(t, zero.Suite())
}
