package ckpt_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
)

// TestTranscripts judges histories written by hand.
func TestTranscripts(t *testing.T) { transcript.Run(t, ckpt.Contract(), "testdata") }
