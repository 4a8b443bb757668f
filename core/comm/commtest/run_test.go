package commtest_test

import "testing"

func TestExample(t *testing.T) { conforms(t) }
