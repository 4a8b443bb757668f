package suite

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// DamagedSpec is the configuration of the run whose checkpoint is damaged, as stored.
func DamagedSpec() (json.RawMessage, error) {
	cfg, err := damagedConfig(suite.Options{})
	if err == nil {
		err = cfg.Validate()
	}
	return cfg.Spec(), err
}

// Damage does the damage of a name to the checkpoint in dir.
func Damage(name, dir string) error { return damages()[name](dir) }

// Damaged is the history of a run whose checkpoint a damage of the name was done to
// before the clauses about files see it.
func Damaged(ctx context.Context, name string) (*trace.History, error) {
	cfg, err := damagedConfig(suite.Options{})
	if err != nil {
		return nil, err
	}
	cfg.Steps, cfg.Recording.Digests = stored, true
	do := damages()
	between := func(root string, step int) error {
		if do[name] == nil {
			return nil
		}
		dir := filepath.Join(root, checkpoint.DirName(step))
		if err := do[name](dir); err != nil {
			return err
		}
		if moved := filepath.Join(root, checkpoint.DirName(beyond)); exists(moved) {
			return os.Rename(moved, dir) // the clauses look at the run's last step
		}
		return nil
	}
	return keeping(suite.Later{}, cfg, between)(ctx, suite.Env{
		Parts: launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }},
		Text:  func(string) (data.Text, error) { return data.Default(), nil },
	})
}
