// Package failing_test holds properties that do not hold, so that the tests of
// package gen can see how they are reported.
package failing_test

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/property/gen"
)

func TestFailing(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "failing")
}

var _ = ginkgo.Describe("a wrong (and odd) claim: 'all", func() {
	ginkgo.It("numbers are small'", func() {
		gen.Check("small", func(t *rapid.T) {
			if n := rapid.IntRange(0, 1<<20).Draw(t, "n"); n >= 1234 {
				t.Fatalf("%d is not small", n)
			}
		})
	})
	ginkgo.It("numbers are small' twice", func() {
		gen.Check("twice", func(t *rapid.T) {
			rapid.IntRange(0, 9).Draw(t, "other")
			t.Fatalf("never")
		})
	})
})
