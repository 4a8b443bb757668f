//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/gpu"
)

// Contracts hold with ranks in processes, of all that runs are: training, runs that
// store and go on, drills of communicators, one rank alone.
func TestProcessesHold(t *testing.T) {
	for args, says := range map[string]string{
		`--contract C-DDP-001|--plan|dp=2|--config|nano`:                                 "8 clauses: 8 held",
		`--contract C-CKPT-001|--case|golden checkpoint`:                                 "1 clause: 1 held",
		`--contract C-CKPT-001|--case|damaged checkpoints`:                               "1 clause: 1 held",
		`--contract C-CKPT-001|--case|odd dp=2 then dp=1,tp=2 then dp=4,zero=3`:          "4 clauses: 4 held",
		`--contract C-COMM-001|--case|tree of 3 ranks`:                                   "7 clauses: 7 held",
		`--contract C-KERN-001|--case|routines`:                                          "1 clause: 1 held",
		`--contract C-KERN-001|--case|memory`:                                            "saw 603/603",
		`--contract C-KERN-001|--case|devices`:                                           "C-KERN-001.9  saw 15/15",
		`--contract C-CKPT-001|--case|odd dp=2,zero=1 then dp=1,pp=2 from step 99999998`: "4 clauses: 4 held",
		`--contract C-CKPT-001|--case|nano dp=2 from step 1073741822 stored`:             "2 clauses: 2 held",
		`--contract C-DATA-001|--case|nano dp=2 from step 20011`:                         "4 clauses: 4 held",
		`--contract C-MODEL-001|--case|nano from step 100`:                               "3 clauses: 3 held",
		`--contract C-MODEL-001|--steps|2`:                                               "held",
	} {
		all := append([]string{"--launch", "procs", "--agents", "3", "--deadline", "60s"}, strings.Split(strings.Replace(args, " ", "|", 1), "|")...)
		code, stdout, stderr := call(t.Context(), all...)
		if code != cli.OK || !strings.Contains(stdout, says) || !strings.Contains(stdout, "processes, 3 agents: rank r is in agent r mod 3") {
			t.Errorf("%s: %d, want %q in\n%s%s", args, code, says, stdout, stderr)
		}
		if left := children(t); len(left) > 0 {
			t.Errorf("%s: processes %v are left", args, left)
		}
	}
}

// Each agent drills its own backend, and one that has no rank of a run is named.
func TestProcessesAreAllDrilled(t *testing.T) {
	says := func(agents, want string, args ...string) {
		t.Helper()
		code, stdout, stderr := call(t.Context(), append([]string{"--launch", "procs", "--agents", agents, "--deadline", "60s"}, args...)...)
		if code != cli.OK || !strings.Contains(stdout, want) {
			t.Errorf("%s agents, %v: %d, want %q in\n%s%s", agents, args, code, want, stdout, stderr)
		}
	}
	saw := func(n int) string { return fmt.Sprintf("C-KERN-001.6  saw %d/%d", n*584, n*584) }
	says("1", saw(1), "--contract", "C-KERN-001.6")
	says("3", saw(3), "--contract", "C-KERN-001.6")
	says("4", "note: agents=4: 2, 3 carried no rank of runs of 2 ranks, which say nothing of them: 1, the first C-DDP-001, nano dp=2, test run", "--contract", "C-DDP-001", "--plan", "dp=2", "--config", "nano")
	says("4", "note: agents=4: 1 to 3 carried no rank of runs of 1 ranks", "--contract", "C-DDP-001", "--plan", "dp=2", "--config", "nano")
	if _, stdout, _ := call(t.Context(), "--launch", "procs", "--agents", "4", "--contract", "C-KERN-001.6"); strings.Contains(stdout, "carried no rank") {
		t.Errorf("%s", stdout)
	}
}

// What needs one process is named as left out, and then nothing is held.
func TestProcessesLeaveOut(t *testing.T) {
	code, stdout, stderr := call(t.Context(), "--launch", "procs", "--contract", "C-DDP-001.1,C-ORDER-001", "--case", "nano dp=2")
	if code != cli.Usage && code != cli.Inconclusive || !strings.Contains(stdout+stderr, "C-ORDER-001: its ranks take turns in the memory of one process, and there are agents=2") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

// Mutants are broken in the processes that have their ranks, and are seen; also one that
// has the same operations again on communicators which are split anew, whose numbers
// then are the same.
func TestProcessesSelfTest(t *testing.T) {
	if code, stdout, stderr := call(t.Context(), "--launch", "procs", "--self-test", "--faults", "all-reduced-instead-of-scattered"); code != cli.OK {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr := call(t.Context(), "--launch", "procs", "--self-test", "--contract", "C-DDP-001", "--faults", "reduction-skipped,bit-flipped-on-one-slice")
	if code != cli.OK || strings.Count(stdout, "caught  ") < 2 {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = call(t.Context(), "--launch", "procs", "--self-test", "--contract", "C-DDP-001", "--faults", "reduction-skipped,shared-moments")
	if code != cli.Inconclusive || !strings.Contains(stdout, "C-DDP-001: not run, as the fault is in what ranks of one process share, and there are agents=2: shared-moments") {
		t.Errorf("%d: %s", code, stdout)
	}
}

func TestProcessesUsage(t *testing.T) {
	for args, says := range map[string]string{
		"--launch procs --history x":              "--history and --launch: have no meaning together",
		"--launch threads":                        `launch "threads": known are goroutines, procs`,
		"--agents 2":                              "agents=2: belongs to --launch procs",
		"--launch procs --self-test --faults all": "faults=all: generated faults",
		"--launch procs --contract C-ORDER-001":   "take turns in the memory of one process",
		"--launch procs --transport local":        `transport "local"`,
		"--transport mpi --expect-agents 2":       "transport mpi: this program is built without it; make build-mpi builds one with it",
		"--plan dp=2;dp=4,comm=mpi":               "plan dp=4,comm=mpi: comm=mpi belongs to --transport mpi",
		"--launch procs --agents 2 --deadline 0s": "deadline=0s",
		"--launch procs --agents 0":               "agents=0: must be at least 1",
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(args)...)
		if code != cli.Usage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d, %q, want %q", args, code, stderr, says)
		}
	}
}

// Processes that torchrun has started judge together: the first prints, and both end
// with its exit code.
func TestLaunchedProcesses(t *testing.T) {
	for name, value := range map[string]string{"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": strconv.Itoa(os.Getpid()), "RANK": "0", "LOCAL_RANK": "0"} {
		t.Setenv(name, value)
	}
	for _, x := range []struct {
		what, says string
		to         io.Writer
		code       int
	}{
		{"--contract C-DDP-001 --case 'nano dp=2'", "8 held", nil, cli.OK},
		{"--contract C-TP-001.1 --plan dp=2", "inconclusive", nil, cli.Inconclusive},
		{"--contract C-DDP-001.1 --plan dp=2 --steps 1", "", lost{}, cli.CannotRun},
	} {
		args := append([]string{"--expect-agents", "2", "--deadline", "30s"}, words(t, x.what)...)
		other := exec.Command(os.Args[0], args...)
		other.Env = append(os.Environ(), "RANK=1", "LOCAL_RANK=1", "VERIFY_TEST_AS_COMMAND=1")
		var said, stdout, stderr strings.Builder
		other.Stdout, other.Stderr = &said, &said
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		to := io.Writer(&stdout)
		if x.to != nil {
			to = x.to
		}
		code := run(t.Context(), args, to, &stderr)
		_ = other.Wait()
		if got := other.ProcessState.ExitCode(); code != x.code || got != x.code || said.String() != "" {
			t.Errorf("%s: %d, and the other %d with %q, want %d: %s", x.what, code, got, said.String(), x.code, stderr.String())
		}
		if x.to == nil && (!strings.Contains(stdout.String(), "transport  shared memory, processes, 2 agents of torchrun: rank r is in agent r mod 2") || !strings.Contains(stdout.String(), x.says)) {
			t.Errorf("%s: %s", x.what, stdout.String())
		}
	}
	for flags, says := range map[string]string{
		"--expect-agents 3":                           "expect-agents=3: torchrun has started 2",
		"--expect-agents 2 --launch procs --agents 2": "--launch says otherwise",
		"--expect-agents 0":                           "expect-agents=0: must be at least 1",
		"--expect-agents 2 --data -":                  "a launcher gives stdin to one process",
	} {
		if code, _, stderr := call(t.Context(), strings.Fields(flags)...); code != cli.Usage || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d, %s", flags, code, stderr)
		}
	}
}

// children are the processes that this one has started and not waited for.
func children(t *testing.T) (out []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		b, _ := os.ReadFile(file) // a thread may have ended
		for _, s := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}

// idle reports whether a process has not yet worked for a second: its ranks may not
// have begun.
func idle(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	const user, second = 11, 100 // utime, of the fields that follow the name, in ticks
	fields := strings.Fields(after)
	if err != nil || len(fields) <= user {
		return true
	}
	ticks, err := strconv.Atoi(fields[user])
	return err != nil || ticks < second
}

// An agent that is killed ends the verification with 4; it is named, with the ranks
// that it had, and so are the cases that were not run. What its ranks recorded up to
// there is judged.
func TestProcessesKilled(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	killed := make(chan int, 1)
	go func() {
		for ctx.Err() == nil {
			if all := children(t); len(all) == 3 && !slices.ContainsFunc(all, idle) {
				_ = syscall.Kill(all[1], syscall.SIGKILL)
				killed <- all[1]
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	code, stdout, stderr := call(ctx, append(endless(""), "--launch", "procs", "--agents", "3", "--deadline", "10s")...)
	pid := <-killed
	said := stdout + stderr
	for _, s := range []string{fmt.Sprintf("(process %d, with rank", pid), "was ended by signal 9 (killed)", "the test run ended early: agent "} {
		if !strings.Contains(said, s) {
			t.Errorf("%q is not said:\n%s", s, said)
		}
	}
	if code != cli.CannotRun || strings.Contains(stdout, "saw 0/") && !strings.Contains(stdout, "C-DDP-001.2  saw") {
		t.Errorf("%d: %s", code, said)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// Processes that nobody but the command line numbers judge together where they are told
// to meet, with a secret that is in no report.
func TestProcessesMeet(t *testing.T) {
	const secret = "a secret of more than sixteen bytes"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	args := func(agent string, more ...string) []string {
		return append([]string{"--expect-agents", "2", "--agent", agent, "--rendezvous", at, "--token-file", token, "--contract", "C-DDP-001", "--case", "nano dp=2", "--deadline", "30s"}, more...)
	}
	other := exec.Command(os.Args[0], args("1")...)
	other.Env = append(os.Environ(), "VERIFY_TEST_AS_COMMAND=1")
	var said strings.Builder
	other.Stdout, other.Stderr = &said, &said
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call(t.Context(), args("0", "--format", "json")...)
	if err := other.Wait(); err != nil || said.String() != "" {
		t.Errorf("the other ended with %v and %q", err, said.String())
	}
	if code != cli.OK || !strings.Contains(stdout, "2 agents of the command line: rank r is in agent r mod 2; ") || !strings.Contains(stdout, " at 127.0.0.1 (interface lo): agents 0, 1") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, secret) {
		t.Error("the secret is in the report")
	}
}

// Agents that would reach each other by different ways, or of which some have simulated
// devices, or may not, are none of one run.
func TestIdentity(t *testing.T) {
	t.Setenv(gpu.Variable, "") // of whoever runs the test
	of := func(o options) string {
		s, err := o.identity(&contracts.Options{})
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
