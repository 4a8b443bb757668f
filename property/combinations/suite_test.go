package combinations_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/lockstep-ml/lockstep/property/gen"
)

func TestProducts(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	gen.Checks(t, "60")
	ginkgo.RunSpecs(t, "products of plans")
}
