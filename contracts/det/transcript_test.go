package det_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/det"
)

// TestTranscripts judges histories written by hand.
func TestTranscripts(t *testing.T) { transcript.Run(t, det.Contract(), "testdata") }
