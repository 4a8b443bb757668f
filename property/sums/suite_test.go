package sums_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/lockstep-ml/lockstep/property/gen"
)

func TestSums(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	gen.Checks(t, "2000")
	ginkgo.RunSpecs(t, "canonical sums")
}
