//go:build linux && slurm

package outage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The batch script of the examples starts agents whose verdict is the job's exit code.
func TestSlurmBatch(t *testing.T) {
	c := newCluster(t)
	script, err := filepath.Abs("../../examples/launchers/verify.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	batch := "--wait -N 1 -n 3 -c 1 -t 5 --mem-per-cpu=0 -o DIR/out " + script + " --deadline 60s --contract "
	for contract, want := range map[string]struct {
		code int
		says string
	}{
		"C-TP-001":   {0, "processes, 3 agents of Slurm step: rank r is in agent r mod 3"},
		"C-NONE-001": {2, "C-NONE-001"},
	} {
		c.end(c.begin("sbatch", batch+contract, "VERIFY="+filepath.Join(bin, "verify")), 3*time.Minute, want.code)
		if b, err := os.ReadFile(c.path("out")); err != nil || !strings.Contains(string(b), want.says) {
			t.Errorf("%v: want %q: %s", err, want.says, b)
		}
	}
}
