//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// TestMain lets the test binary be an agent of the command.
func TestMain(m *testing.M) {
	if seat, err := procs.Taken(); seat != nil || err != nil {
		main()
	}
	os.Exit(m.Run())
}

// Ranks over TCP and in processes print what goroutines print, but for where they are.
func TestPlacementChangesNothing(t *testing.T) {
	args := []string{"--plan", "dp=2,tp=2,pp=2,zero=1", "--steps", "3", "--fingerprint"}
	code, want, stderr := call(t.Context(), args...)
	if code != cli.OK {
		t.Fatal(code, stderr)
	}
	for _, x := range []struct{ flags, where string }{
		{"--transport tcp", ""},
		{"--launch procs --agents 3", "processes: agent 0 has ranks 0, 3, 6, agent 1 has ranks 1, 4, 7, agent 2 has ranks 2, 5\n"},
	} {
		code, got, stderr := call(t.Context(), append(strings.Fields(x.flags), args...)...)
		if code != cli.OK || stderr != "" || !strings.Contains(got, x.where) || strings.Replace(got, x.where, "", 1) != want {
			t.Errorf("%s: %d\n%s%s, want\n%s", x.flags, code, got, stderr, want)
		}
	}
	if code, out, _ := call(t.Context(), "--launch", "procs", "--plan", "dp=2", "--steps", "1", "--format", "json"); code != cli.OK || !strings.Contains(out, `"agents":[[0],[1]]`) {
		t.Errorf("%d: %s", code, out)
	}
}

// Processes record histories, store and go on from checkpoints of any plan, and read
// the text that stdin gives this process.
func TestProcessesStoreAndRecord(t *testing.T) {
	dir := t.TempDir()
	ck, history := filepath.Join(dir, "ck"), filepath.Join(dir, "history")
	for _, args := range []string{
		"--launch procs --agents 2 --plan dp=4,zero=3 --steps 2 --save " + ck,
		"--launch procs --agents 3 --plan tp=2,pp=2 --steps 4 --resume " + ck + " --fingerprint --history " + history,
	} {
		if code, _, stderr := call(t.Context(), strings.Fields(args)...); code != cli.OK {
			t.Fatalf("%s: %d, %s", args, code, stderr)
		}
	}
	_, want, _ := call(t.Context(), "--steps", "4", "--fingerprint", "--quiet")
	_, got, _ := call(t.Context(), strings.Fields("--launch procs --plan dp=2 --steps 4 --quiet --fingerprint --resume "+ck)...)
	if got != want || want == "" {
		t.Errorf("%q after a checkpoint, %q without", got, want)
	}
	all, err := trace.Load(history)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 4 {
		if o := all[0].Origin(rank); o.Process != rank%3+1 || o.Host == "" {
			t.Errorf("rank %d was in process %d of %q", rank, o.Process, o.Host)
		}
	}
	if cut := all[0].CutOff(); cut != "" || len(all[0].Missing()) > 0 {
		t.Errorf("%s, ranks %v are missing", cut, all[0].Missing())
	}
}

func TestPlacementsThatAreNone(t *testing.T) {
	for args, says := range map[string]string{
		"--launch threads":                         `launch "threads": known are goroutines, procs`,
		"--agents 2":                               "agents=2: belongs to --launch procs",
		"--launch procs --agents 0":                "agents=0: must be at least 1",
		"--launch procs --agents 3 --plan dp=2":    "agents=3: plan dp=2,microbatches=4 has 2 ranks",
		"--launch procs --transport local":         `transport "local": ranks in several processes`,
		"--transport pigeon":                       `transport "pigeon": known are local, tcp`,
		"--dry-run --launch procs":                 "--launch: a dry run",
		"--launch procs --deadline 0s --plan dp=2": "deadline=0s",
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(args)...)
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d, %q, want %q", args, code, stderr, says)
		}
	}
}
