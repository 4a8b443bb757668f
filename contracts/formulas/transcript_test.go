package formulas_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/formulas"
)

// TestTranscripts judges histories written by hand.
func TestTranscripts(t *testing.T) { transcript.Run(t, formulas.Contract(), "testdata") }
