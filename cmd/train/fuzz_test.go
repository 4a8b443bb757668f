package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

// FuzzConfig: no configuration file makes a dry run panic, hang or fill the
// memory; it is planned or refused as usage.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(unfit))
	f.Add([]byte(`{"vocab":64,"hidden":8,"layers":1,"heads":2,"kv_heads":1,"head_dim":4,"intermediate":8,"seq_len":8}`))
	f.Add([]byte(`{"vocab":64,"hidden":8,"layers":3,"heads":2,"kv_heads":1,"head_dim":4,"intermediate":8,"seq_len":8,"tied":true,"groups":{"data":4,"tensor":2},"optimizer":{"name":"sgd","lr":0.1,"momentum":0.9,"warmup":3,"horizon":9}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "c.json")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, plan := range []string{"dp=1", "dp=2,tp=2,pp=2,zero=1"} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			begun := time.Now()
			code, _, stderr := call(ctx, "--dry-run", "--config", path, "--plan", plan)
			cancel()
			if code != cli.OK && code != cli.Usage {
				t.Errorf("plan %s: exit code %d, %s", plan, code, stderr)
			}
			if d := time.Since(begun); d > 20*time.Second {
				t.Errorf("plan %s: took %s", plan, d)
			}
		}
	})
}
