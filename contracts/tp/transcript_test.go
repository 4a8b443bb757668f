package tp_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/tp"
)

// TestTranscripts judges histories written by hand.
func TestTranscripts(t *testing.T) { transcript.Run(t, tp.Contract(), "testdata") }
