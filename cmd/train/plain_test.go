//go:build !cuda

package main

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/gpu"
)

// TestNoGPUsAreBuiltIn: a program without the build for GPUs that is asked for some ends
// with 4, trains nothing and names the build that has them; in agents too.
func TestNoGPUsAreBuiltIn(t *testing.T) {
	for _, c := range []struct{ variable, args, want string }{
		{"", "", "make build-cuda"},
		{"", "--require-device cuda", "make build-cuda"},
		{"", "--require-device cuda --devices 0-1 --launch procs", "make build-cuda"},
		{"sim", "", "make build-cuda"},
		{"sim", "--require-device cuda", "wants real devices, and simulated ones (sim:2) were chosen"},
	} {
		t.Setenv(gpu.Variable, c.variable)
		code, stdout, stderr := call(t.Context(), append(strings.Fields(c.args), "--backend", "cuda", "--fingerprint")...)
		if code != cli.CannotRun || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("LOCKSTEP_CUDA=%s %s: %d, %s%s; want %q", c.variable, c.args, code, stdout, stderr, c.want)
		}
	}
	t.Setenv(gpu.Variable, "")
	if code, _, stderr := call(t.Context(), "--require-device", "cuda"); code != cli.Usage || !strings.Contains(stderr, `require-device "cuda": belongs to --backend cuda; the backend is cpu`) {
		t.Errorf("of a processor: %d, %s", code, stderr)
	}
}
