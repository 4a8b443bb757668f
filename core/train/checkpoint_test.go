package train_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// runPlan trains a preset under a plan and gives the fingerprint of its last step;
// on short sequences under the race detector.
func runPlan(t *testing.T, name, p string, steps int, c train.Checkpoints, change func(*spec.Config)) (spec.Fingerprint, error) {
	t.Helper()
	cfg, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse(p); err != nil {
		t.Fatal(err)
	}
	if race.Enabled {
		cfg.Model.SeqLen = 5
	}
	cfg.Steps, cfg.Recording.Digests = steps, true
	if change != nil {
		change(&cfg)
	}
	out, err := launch.Local(context.Background(), cfg, data.Default(), launch.Parts{Hooks: train.Hooks{Checkpoints: c},
		Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }})
	if err != nil {
		return spec.Fingerprint{}, err
	}
	return spec.FingerprintAt(out.History, steps-1)
}

// A run that is stored after 2 steps and goes on under another plan ends where
// an uninterrupted one does.
func TestResumeUnderAnotherPlan(t *testing.T) {
	pairs := map[string][][2]string{
		"nano": {
			{"dp=2", "dp=2"}, {"dp=1", "dp=4,zero=3"}, {"dp=4,zero=3", "tp=4"}, {"tp=2", "pp=4"},
			{"pp=2,tp=2", "dp=8,zero=1"}, {"dp=2,pp=2,zero=2", "dp=2,tp=2,vocab=parallel"},
			{"pp=2,schedule=interleaved,virtual=2", "dp=2,pp=2,zero=3"}, {"dp=8,zero=1", "dp=1"},
		},
		"odd": {
			{"dp=4,zero=1", "pp=3"}, {"pp=4", "dp=2,zero=3,pp=2"}, {"tp=4,vocab=parallel", "dp=4,zero=2"},
			{"dp=2,tp=2,zero=3", "tp=4"}, {"dp=1", "pp=2,tp=2"},
		},
	}
	for name, ps := range pairs {
		want, err := runPlan(t, name, "dp=1", 4, train.Checkpoints{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range race.Some(6, ps) {
			t.Run(name+" "+p[0]+" then "+p[1], func(t *testing.T) {
				dir := t.TempDir()
				if _, err := runPlan(t, name, p[0], 2, train.Checkpoints{Dir: dir}, nil); err != nil {
					t.Fatal(err)
				}
				ck, err := checkpoint.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer ck.Close()
				got, err := runPlan(t, name, p[1], 4, train.Checkpoints{Resume: ck}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("resumed:       %v\nuninterrupted: %v", got, want)
				}
			})
		}
	}
}

func TestDamagedCheckpointsAreRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := runPlan(t, "nano", "dp=2,zero=3", 2, train.Checkpoints{Dir: dir, Every: 1}, nil); err != nil {
		t.Fatal(err)
	}
	one, two := filepath.Join(dir, checkpoint.DirName(1)), filepath.Join(dir, checkpoint.DirName(2))
	file := filepath.Join(two, checkpoint.FileName(1))
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(filepath.Join(one, checkpoint.FileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-5] ^= 1
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"truncated", good[:len(good)-4], "truncated"},
		{"one bit", flipped, "damaged"},
		{"of another step", older, "SHA-256"},
		{"missing", nil, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.data == nil {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, c.data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err := checkpoint.Open(dir)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "rank-00001") {
				t.Errorf("got %v, want an error that names the file and says %q", err, c.says)
			}
		})
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	for says, change := range map[string]func(*spec.Config){
		"seed": func(c *spec.Config) { c.Seed++ }, "model": func(c *spec.Config) { c.Model.Tied = true },
		"optimizer": func(c *spec.Config) { c.Optimizer.LR = 1 }, "sequences": func(c *spec.Config) { c.Sequences = 8 },
	} {
		if _, err := runPlan(t, "nano", "dp=1", 3, train.Checkpoints{Resume: ck}, change); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("resume with another %s: %v", says, err)
		}
	}
}

func TestUnfinishedCheckpointIsNotSeen(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(checkpoint.Pending(dir, 3), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Save(checkpoint.Pending(dir, 3), 0, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Open(dir); err == nil || !strings.Contains(err.Error(), "no complete checkpoint") {
		t.Errorf("got %v", err)
	}
}
