package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// PassedOver says what lies beside a checkpoint that was taken from root, newest
// first: older steps, and steps that are none. It refuses a directory in which
// another step is of a run that computes something else: which of the two to go on
// from is not for a program to guess.
func PassedOver(root string, taken *checkpoint.Checkpoint) ([]string, error) {
	if same(root, taken.Dir) {
		return nil, nil // it was named itself
	}
	steps, err := checkpoint.List(root)
	if err != nil {
		return nil, err
	}
	cfg, err := spec.Parse(taken.Manifest.Spec)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", taken.Dir, err)
	}
	var out []string
	for _, s := range steps {
		name := filepath.Base(s.Dir)
		switch {
		case same(s.Dir, taken.Dir):
			continue
		case s.Err != nil:
			out = append(out, fmt.Sprintf("%s (%v)", name, s.Err))
			continue
		}
		if err := compatible(s.Manifest.Spec, cfg); err != nil {
			return nil, fmt.Errorf("%s: holds checkpoints of two runs, %s and %s: in the first %w; name the one to go on from",
				root, name, filepath.Base(taken.Dir), err)
		}
		out = append(out, name+" (older)")
	}
	return out, nil
}

// Savable refuses a directory to store in that holds steps which the run does not
// go on from, or would replace: what another run stored is not overwritten, and
// two runs do not mix. from is nil for a run that starts from its seed.
func Savable(root string, from *checkpoint.Checkpoint) error {
	steps, err := checkpoint.List(root)
	if err != nil {
		return err
	}
	for _, s := range steps {
		switch {
		case s.Err != nil: // it is nothing to go on from
		case from == nil || !same(root, filepath.Dir(from.Dir)):
			return fmt.Errorf("%s: holds %s of an earlier run: name an empty directory, or go on from it", root, filepath.Base(s.Dir))
		case s.Step > from.Manifest.Step:
			return fmt.Errorf("%s: holds %s, and the run goes on from step %d, so it would be replaced: name an empty directory, or go on from the newest",
				root, filepath.Base(s.Dir), from.Manifest.Step)
		}
	}
	return nil
}

// same reports whether two paths lead to one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
