package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-ml/lockstep/benchmarks/step"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// orderBar is what the canonical order may cost a step of 5M on 32 sequences.
const orderBar = 1.10

// order compares the groups of the configuration 5M with none, over batch sizes,
// and says from how many tokens of a step on the cost stays within the bar.
func order(o options, b *cpu.Backend, w io.Writer) error {
	c, err := spec.Preset("5M")
	if err != nil {
		return err
	}
	groups, seqLen := c.Model.Groups, c.Model.SeqLen
	within := 0 // tokens from which on all larger batches were within the bar
	for _, sequences := range []int{4, 8, 16, 32, 64} {
		name := fmt.Sprintf("order 5M B%d T%d, G%d D%d against G1 D1", sequences, seqLen, groups.Tensor, groups.Data)
		if !strings.Contains(name, o.match) {
			continue
		}
		with, err := step.Config("5M", groups, sequences)
		if err != nil {
			return err
		}
		without, err := step.Config("5M", model.Groups{Tensor: 1, Data: 1}, sequences)
		if err != nil {
			return err
		}
		ratio, err := compare(o, b, w, name, with, without)
		if err != nil {
			return err
		}
		switch {
		case ratio > orderBar:
			within = 0
		case within == 0:
			within = sequences * seqLen
		}
	}
	switch {
	case o.match != "": // some batches only
	case within > 0:
		fmt.Fprintf(w, "# on %d threads the order costs at most %.2f from %d tokens of a step on\n", b.Threads(), orderBar, within)
	default:
		fmt.Fprintf(w, "# on %d threads the order costs more than %.2f up to the largest batch\n", b.Threads(), orderBar)
	}
	return nil
}

// verification compares runs that record what contracts read at level 1 with
// runs that record nothing: digests cost the same for every batch, so the share
// falls with it.
func verification(o options, b *cpu.Backend, w io.Writer) error {
	for _, c := range []struct {
		config    string
		sequences int
	}{{"5M", 16}, {"5M", 32}, {"50M", 4}} {
		plain, err := spec.Preset(c.config)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("verification %s B%d T%d, level 1", c.config, c.sequences, plain.Model.SeqLen)
		if !strings.Contains(name, o.match) {
			continue
		}
		if plain, err = step.Config(c.config, plain.Model.Groups, c.sequences); err != nil {
			return err
		}
		verified := plain
		verified.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
		if _, err := compare(o, b, w, name, verified, plain); err != nil {
			return err
		}
	}
	return nil
}
