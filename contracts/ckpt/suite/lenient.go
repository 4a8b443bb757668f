package suite

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// unchecked opens every checkpoint with sizes and hashes as they are.
func unchecked(c *suite.Case) {
	*c = damaged(suite.Options{}, func(dir, _ string) error {
		// What cannot be resealed (a file or a manifest that is gone) stays as it is.
		_ = reseal(dir)
		return nil
	})
}

// unasked opens every checkpoint as if the fields of its manifest were those of the run
// that goes on from it.
func unasked(paths ...string) func(c *suite.Case) {
	return func(c *suite.Case) {
		*c = damaged(suite.Options{}, func(dir, whole string) error {
			b, err := os.ReadFile(filepath.Join(whole, checkpoint.ManifestName))
			if err != nil {
				return err
			}
			var of map[string]any
			if err := json.Unmarshal(b, &of); err != nil {
				return err
			}
			for _, path := range paths {
				at := strings.Split(path, ".")
				// A manifest that is gone or says the same stays as it is.
				_ = manifested(setting(lookUp(of, at), at...))(dir)
			}
			return nil
		})
	}
}

// newer opens every checkpoint of a later arithmetic as if it were of this one.
func newer(c *suite.Case) {
	*c = damaged(suite.Options{}, func(dir, _ string) error {
		_ = manifested(func(m map[string]any) { // one that is gone stays so
			n, _ := m["arithmetic"].(json.Number)
			if version, err := n.Int64(); err == nil && version > kernels.Arithmetic {
				m["arithmetic"] = kernels.Arithmetic
			}
		})(dir)
		return nil
	})
}

// unadded opens every checkpoint with digests as they are in its files.
func unadded(c *suite.Case) {
	*c = damaged(suite.Options{}, func(dir, _ string) error {
		cfg, err := damagedConfig(suite.Options{})
		if err != nil {
			return err
		}
		got, err := independent.OpenCheckpoint(dir, params(cfg.Model), []string{trace.MomentM, trace.MomentV})
		if err != nil {
			return nil // not to be read at all
		}
		for what := range got.Tensors {
			_ = manifested(setting(got.Digest(what).String(), "digests", what))(dir)
		}
		return nil
	})
}

// unread opens every checkpoint as a reader would that takes no offence at some of
// what the other reader names: where that is all there is, it finds what was stored.
func unread(words ...string) func(c *suite.Case) {
	return func(c *suite.Case) {
		*c = damaged(suite.Options{}, func(dir, whole string) error {
			cfg, err := damagedConfig(suite.Options{})
			if err != nil {
				return err
			}
			_, err = independent.OpenCheckpoint(dir, params(cfg.Model), []string{trace.MomentM, trace.MomentV})
			if err == nil || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
				return nil
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(whole))
		})
	}
}
