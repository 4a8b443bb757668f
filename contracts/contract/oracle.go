package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// Texts gives the bytes of a training text by the name that a configuration
// gives. The bytes are not the caller's to change.
type Texts func(name string) ([]byte, error)

// OtherText is a text that is not the one a run was given.
type OtherText struct {
	Name   string
	Bytes  int    // of the text that has the name
	SHA256 string // its
	Given  string // that of the text that the run was given
}

// Error says of both what they are.
func (o *OtherText) Error() string {
	return fmt.Sprintf("text %s has %d bytes with SHA-256 %.12s, the run was given one with %.12s", o.Name, o.Bytes, o.SHA256, o.Given)
}

// Text is the training text of a run: the bytes whose SHA-256 cfg names. The error
// is an OtherText where the text of that name is another.
func (p *Pass) Text(cfg spec.Config) ([]byte, error) {
	if p.Texts == nil {
		return nil, errors.New("no training text to compare with")
	}
	text, err := p.Texts(cfg.Text)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != cfg.TextHash {
		return nil, &OtherText{cfg.Text, len(text), got, cfg.TextHash}
	}
	return text, nil
}

// State holds the elements of weights and moments: by What of package trace
// (Weight, MomentM, ...), then by parameter name.
type State map[string]map[string][]float32

// Oracle answers what a step does at given weights. It is safe for concurrent
// use.
type Oracle interface {
	// Gradient evaluates the step's gradient of the run of a validated cfg, at
	// the recorded weights (by parameter name), in float64, with an elementwise
	// bound on the error of any float32 evaluation of it. It may add the mean
	// loss under trace.Loss.
	Gradient(cfg spec.Config, step int, weights map[string][]float32) (map[string]Bounded, error)
	// Update is the state after the optimizer step that follows taken others,
	// given the reduced gradient (by parameter name, before clipping). It
	// changes none of its arguments.
	Update(cfg spec.Config, taken int, before State, grad map[string][]float32) (State, error)
}

// Bounded is an exact value per element with the error bound that any float32
// evaluation in any order of summation satisfies.
type Bounded struct{ Value, Bound []float64 }
