package main

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// What a history holds grows with parameters, steps and ranks. Elements are
// recorded up to maxElements of that product (four float32 of each: weight,
// gradient, two moments), activations, of which only digests are, up to
// maxTapped.
const (
	maxElements = 1 << 24
	maxTapped   = 1 << 28
)

// evidence is what a validated run must record for verify --history to judge
// it, one that is resumed also from where, and a sentence for everything that is too much to be recorded.
func evidence(c spec.Config, resumed bool) (e spec.Recording, left []string) {
	e = spec.Recording{Digests: true, Workers: true}
	size := float64(c.Model.Params()) * float64(c.Steps) * float64(c.Plan.World())
	leave := func(what, contract string, limit float64) {
		left = append(left, fmt.Sprintf("%s are not recorded: parameters x steps x ranks are %.3g, at most %.3g fit; %s will be inconclusive",
			what, size, limit, contract))
	}
	if c.Plan.TP > 1 {
		if e.Taps = size <= maxTapped; !e.Taps {
			leave("digests of activations", "C-TP-001", maxTapped)
		}
	}
	if !c.Plan.Exact(c.Model) {
		if e.Capture = size <= maxElements; !e.Capture && c.Plan.World() == c.Plan.DP && c.Plan.Zero == 0 {
			leave("elements", "C-DDP-001", maxElements)
		}
	}
	if resumed {
		if e.Start = c.Model.Params() <= maxElements; !e.Start {
			left = append(left, fmt.Sprintf("elements of the state that the run goes on from are not recorded: the model has %d parameters, at most %d fit; what is compared with a control will be inconclusive",
				c.Model.Params(), maxElements))
		}
	}
	return e, left
}
