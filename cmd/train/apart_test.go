//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/launch/procs"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/gpu"
)

// TestMain lets the test binary be the command, or an agent of it.
func TestMain(m *testing.M) {
	if seat, err := procs.Taken(); seat != nil || err != nil || os.Getenv("TRAIN_TEST_AS_COMMAND") != "" {
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
	const seats = "processes: agent 0 has ranks 0, 3, 6, agent 1 has ranks 1, 4, 7, agent 2 has ranks 2, 5\n"
	for _, x := range []struct {
		flags string
		where []string
	}{
		{"--transport local", nil},
		{"--transport tcp", []string{"transport tcp, ranks of one process\n"}},
		{"--transport shm", []string{"transport shm, ranks of one process\n"}},
		{"--launch procs --agents 3", []string{seats, "transport shared memory\n"}},
		{"--launch procs --agents 3 --transport tcp", []string{seats, "transport TCP\n"}},
	} {
		code, got, stderr := call(t.Context(), append(strings.Fields(x.flags), args...)...)
		rest := got
		for _, where := range x.where {
			rest = strings.Replace(rest, where, "", 1)
		}
		if code != cli.OK || stderr != "" || rest != want || len(got) != len(want)+len(strings.Join(x.where, "")) {
			t.Errorf("%s: %d\n%s%s, want\n%s", x.flags, code, got, stderr, want)
		}
	}
	for _, x := range []struct{ flags, begin, end string }{
		{"--launch procs", `"agents":[[0],[1]]`, `{"event":"end","transport":"shared memory"}`},
		{"--launch procs --fingerprint --quiet", "", `{"event":"end","fingerprint":"`},
		{"--transport tcp", `"transport":"tcp, ranks of one process"`, `{"event":"end"}`},
		{"", `"backend"`, `{"event":"end"}`},
	} {
		code, out, _ := call(t.Context(), append(strings.Fields(x.flags), "--plan", "dp=2", "--steps", "1", "--format", "json")...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != cli.OK || !strings.Contains(lines[0], x.begin) || !strings.HasPrefix(lines[len(lines)-1], x.end) {
			t.Errorf("%s: %d: %s", x.flags, code, out)
		}
	}
}

// A launcher sends its signals to all processes at once: the run ends with a checkpoint
// after the step, as that of one process does.
func TestASignalToAllProcessesLeavesACheckpoint(t *testing.T) {
	dir := t.TempDir()
	var all []*exec.Cmd
	for rank := range 2 {
		c := exec.CommandContext(t.Context(), os.Args[0], "--expect-agents", "2", "--plan", "dp=2", "--steps", "100000", "--save", dir, "--deadline", "30s")
		c.Env = append(os.Environ(), "TRAIN_TEST_AS_COMMAND=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(os.Getpid()),
			"TORCHELASTIC_RUN_ID="+t.Name(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		all = append(all, c)
	}
	out, err := all[0].StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	all[0].Stderr = &stderr
	for _, c := range all {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step 2/") {
	}
	for _, c := range all {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	for lines.Scan() {
	}
	for i, c := range all {
		if _ = c.Wait(); c.ProcessState.ExitCode() != cli.CannotRun {
			t.Errorf("process %d: %v", i, c.ProcessState)
		}
	}
	if ck, err := checkpoint.Open(dir); err != nil {
		t.Errorf("%v: %s", err, &stderr)
	} else {
		ck.Close()
	}
	if !strings.Contains(stderr.String(), "--resume "+dir+" goes on") {
		t.Errorf("it says %s", &stderr)
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

// Every rank's history has what it has in one process, and is there up to the last
// step when an agent is killed.
func TestHistoriesOfProcesses(t *testing.T) {
	plan := []string{"--plan", "dp=2,pp=2,zero=1"}
	here, apart := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "apart")
	for dir, flags := range map[string]string{here: "--steps 3", apart: "--steps 3 --launch procs --agents 3"} {
		if code, _, stderr := call(t.Context(), slices.Concat(plan, strings.Fields(flags), []string{"--history", dir})...); code != cli.OK {
			t.Fatal(code, stderr)
		}
	}
	a, b := load(t, here), load(t, apart)
	for rank := range 4 {
		if x, y := counts(a.Ranks[rank]), counts(b.Ranks[rank]); !maps.Equal(x, y) {
			t.Errorf("rank %d recorded %v in one process, and %v in its own", rank, x, y)
		}
	}
	cut := filepath.Join(t.TempDir(), "cut")
	out, errs := killer{at: "step 5/"}, bytes.Buffer{}
	code := run(t.Context(), append(plan, "--steps", "100000", "--launch", "procs", "--agents", "3", "--deadline", "10s", "--history", cut), &out, &errs)
	if code != cli.CannotRun || !strings.Contains(errs.String(), "was ended by signal 9") || !strings.Contains(errs.String(), "the history up to there is in "+cut) {
		t.Errorf("%d: %s", code, errs.String())
	}
	h := load(t, cut)
	for rank := range 4 {
		if e := h.Ranks[rank]; len(e) == 0 || e[len(e)-1].Step < 3 {
			t.Errorf("rank %d has %d events", rank, len(e))
		}
	}
	if h.CutOff() == "" || len(h.Damage) > 0 {
		t.Errorf("cut off %q, damage %q", h.CutOff(), h.Damage)
	}
}

// killer kills a child of this process when a line is printed.
type killer struct {
	at     string
	killed bool
}

func (k *killer) Write(b []byte) (int, error) {
	if !k.killed && strings.Contains(string(b), k.at) {
		k.killed = true
		tasks, err := filepath.Glob("/proc/self/task/*/children")
		for _, file := range tasks {
			all, _ := os.ReadFile(file) // a thread may have ended
			for _, s := range strings.Fields(string(all)) {
				var pid int
				if pid, err = strconv.Atoi(s); err == nil {
					return len(b), syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		return 0, fmt.Errorf("nobody to kill: %v", err)
	}
	return len(b), nil
}

func load(t *testing.T, dir string) *trace.History {
	t.Helper()
	all, err := trace.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// counts says how many events of each kind there are in each step.
func counts(events []trace.Event) map[string]int {
	out := map[string]int{}
	for _, e := range events {
		out[fmt.Sprint(e.Step, e.Kind, e.What)]++
	}
	return out
}

func TestPlacementsThatAreNone(t *testing.T) {
	for args, says := range map[string]string{
		"--launch threads":                         `launch "threads": known are goroutines, procs`,
		"--agents 2":                               "agents=2: belongs to --launch procs",
		"--launch procs --agents 0":                "agents=0: must be at least 1",
		"--launch procs --agents 3 --plan dp=2":    "agents=3: plan dp=2,microbatches=4 has 2 ranks",
		"--launch procs --transport local":         `transport "local": ranks in several processes`,
		"--plan dp=4,comm=mpi --transport tcp":     "plan dp=4,microbatches=2,comm=mpi: comm=mpi belongs to --transport mpi, as its sums are MPI's; the transport is tcp",
		"--transport pigeon":                       `transport "pigeon": known are auto, local, mpi, shm, tcp`,
		"--dry-run --launch procs":                 "--launch: a dry run",
		"--launch procs --deadline 0s --plan dp=2": "deadline=0s",
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(args)...)
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d, %q, want %q", args, code, stderr, says)
		}
	}
}

// Agents that would reach each other by different ways, or of which some have simulated
// devices, or may not, are none of one run.
func TestIdentity(t *testing.T) {
	t.Setenv(gpu.Variable, "") // of whoever runs the test
	of := func(o options) string {
		s, err := o.identity(spec.Config{}, train.Checkpoints{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	seen := map[string]int{}
	for i, o := range []options{
		{placed: cli.Placement{Transport: "tcp"}, backend: cli.CUDA},
		{placed: cli.Placement{Transport: "shm"}, backend: cli.CUDA},
		{placed: cli.Placement{Transport: "tcp"}, backend: cli.CUDA, devices: cli.Devices{List: "sim:2"}},
		{placed: cli.Placement{Transport: "tcp"}, backend: cli.CUDA, devices: cli.Devices{Require: cli.CUDA}},
	} {
		if one, again := of(o), of(o); one != again {
			t.Errorf("%s and %s", one, again)
		}
		if other, has := seen[of(o)]; has {
			t.Errorf("options %d have the identity of %d", i, other)
		}
		seen[of(o)] = i
	}
	at := func(devices string) string {
		return of(options{backend: cli.CUDA, devices: cli.Devices{List: devices}})
	}
	if at("0") != at("1") || at("sim:1") != at("sim:2") {
		t.Error("agents have the same devices, or are of no run")
	}
}

// What cannot be printed ends all agents with 4, and not only the one that prints.
func TestLostOutputEndsAllAgents(t *testing.T) {
	for name, value := range map[string]string{"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": strconv.Itoa(os.Getpid()), "RANK": "0", "LOCAL_RANK": "0"} {
		t.Setenv(name, value)
	}
	args := strings.Fields("--expect-agents 2 --plan dp=2 --steps 2 --fingerprint --deadline 30s")
	other := exec.Command(os.Args[0], args...)
	other.Env = append(os.Environ(), "RANK=1", "LOCAL_RANK=1", "TRAIN_TEST_AS_COMMAND=1")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	code := run(t.Context(), args, full{}, &stderr)
	_ = other.Wait()
	if got := other.ProcessState.ExitCode(); code != cli.CannotRun || got != cli.CannotRun {
		t.Errorf("%d, and the other %d: %s", code, got, stderr.String())
	}
}
