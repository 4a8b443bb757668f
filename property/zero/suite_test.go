package zero_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/lockstep-ml/lockstep/property/gen"
)

func TestZero(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	gen.Checks(t, "100")
	ginkgo.RunSpecs(t, "ZeRO")
}
