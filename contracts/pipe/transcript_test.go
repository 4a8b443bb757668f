package pipe_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/pipe"
)

// TestTranscripts judges histories written by hand.
func TestTranscripts(t *testing.T) { transcript.Run(t, pipe.Contract(), "testdata") }
