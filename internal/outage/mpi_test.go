//go:build linux && mpi

package outage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// withMPI has the stage's processes be those that can use MPI.
func withMPI(t *testing.T) *stage {
	t.Helper()
	if _, err := os.Stat(filepath.Join(bin, "mpi", "train")); err == nil {
		return newStage(t)
	}
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-tags", "mpi", "-o", filepath.Join(bin, "mpi")+"/", "./cmd/train", "./cmd/verify")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return newStage(t)
}

// mpirun starts agents, which are one of the commands.
func (s *stage) mpirun(agents int, name, line string) *command {
	args := []string{"--allow-run-as-root", "--oversubscribe", "-n", fmt.Sprint(agents), filepath.Join(bin, "mpi", name)}
	return s.run(exec.Command("mpirun", slices.Concat(args, s.args(line), []string{"--transport", "mpi", "--expect-agents", fmt.Sprint(agents)})...))
}

// Whatever the number of agents, ranks that reach each other by MPI have the golden bits.
func TestMPIHasTheGoldenBits(t *testing.T) {
	const golden = "fingerprint weights=8c91b23c0a7817be9b61e746c590334e moments=ac06d82af6d4e3979ae183d46a058bc8 loss=409b5a3c\n"
	s := withMPI(t)
	for _, x := range []struct {
		agents int
		plan   string
	}{{1, "dp=2"}, {3, "dp=2,tp=2,pp=2,zero=1"}, {4, "dp=2,tp=2,pp=2,zero=1"}, {4, "dp=4,zero=3"}, {2, "tp=4,pp=2"}} {
		c := s.mpirun(x.agents, "train", "--steps 10 --fingerprint --quiet --deadline 30s --plan "+x.plan)
		if !c.wait(time.Now().Add(2*time.Minute)) || c.ProcessState.ExitCode() != 0 || c.said() != golden {
			t.Errorf("%d agents, plan %s: %v, %s", x.agents, x.plan, c.ProcessState, c.said())
		}
	}
	s.empty(time.Now().Add(5 * time.Second))
}

// Where MPI sums, runs are judged by a bound, and the report says that it was MPI; ranks
// that share a process, or a group of some ranks, cannot be summed so.
func TestMPISums(t *testing.T) {
	s := withMPI(t)
	for _, x := range []struct {
		agents     int
		name, line string
		code       int
		says       []string
	}{
		{4, "verify", "--contract C-DDP-001 --plan dp=4,comm=mpi", 0, []string{"transport  MPI, processes, 4 agents", "nano:dp=4,comm=mpi", "largest observed / bound", "8 clauses: 8 held"}},
		{3, "verify", "--contract C-DDP-001 --plan dp=3,comm=mpi --config odd", 0, []string{"largest observed / bound", "8 clauses: 8 held"}},
		{2, "train", "--plan dp=4,comm=mpi --steps 2", 4, []string{"are in one process, and MPI reduces over processes: start as many agents as there are ranks"}},
		{4, "train", "--plan dp=2,tp=2,comm=mpi --steps 2", 4, []string{"algorithm mpi reduces over all of the world's 4 ranks, and this group has 2 of them"}},
	} {
		c := s.mpirun(x.agents, x.name, x.line+" --deadline 30s")
		if !c.wait(time.Now().Add(2*time.Minute)) || c.ProcessState.ExitCode() != x.code {
			t.Errorf("%s %s: %v, %s", x.name, x.line, c.ProcessState, c.said())
		}
		for _, says := range x.says {
			if !strings.Contains(c.said(), says) {
				t.Errorf("%s %s: %q is not said: %s", x.name, x.line, says, c.said())
			}
		}
	}
	s.empty(time.Now().Add(5 * time.Second))
}

// An agent that is killed, or is stopped and so says nothing, ends the run with 4 within
// twice the deadline, and is named; nothing is left.
func TestMPIAgentIsLost(t *testing.T) {
	const late = 6 * time.Second
	for _, x := range []struct {
		name, plan string
		victim     func(process) bool
		signal     syscall.Signal
		says       string
	}{
		{"killed", "dp=8", func(p process) bool { return p.task == 2 && p.works }, syscall.SIGKILL, "train: agent 2 (process %d) ended without a word"},
		{"stopped", "dp=8", func(p process) bool { return p.task == 1 && p.works }, syscall.SIGSTOP, "train: agent 1 (process %d) has said nothing for 6s"},
		{"stopped where MPI sums", "dp=4,comm=mpi", func(p process) bool { return p.task == 3 && p.works }, syscall.SIGSTOP, "train: agent 3 (process %d) has said nothing for 6s"},
		{"killed where MPI sums", "dp=4,comm=mpi", func(p process) bool { return p.task == 1 && p.works }, syscall.SIGKILL, "train: agent 1 (process %d) ended without a word"},
		{"killed beside the driver", "dp=8", func(p process) bool { return p.agent == 0 }, syscall.SIGKILL, "train: agent 0 (process %d) was ended by signal 9 (killed)"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := withMPI(t)
			c := s.mpirun(4, "train", fmt.Sprintf("--plan %s --config tiny --steps 100000 --deadline %v", x.plan, late))
			for !strings.Contains(c.stdout.String(), "step 3/") {
				if c.wait(time.Now().Add(time.Millisecond)) || time.Since(c.begun) > time.Minute {
					t.Fatalf("no step is done: %s", c.said())
				}
			}
			all := s.processes()
			i := slices.IndexFunc(all, x.victim)
			if i < 0 {
				t.Fatalf("no victim among %v", all)
			}
			if err := syscall.Kill(all[i].pid, x.signal); err != nil {
				t.Fatal(err)
			}
			if !c.wait(time.Now().Add(2 * late)) {
				t.Fatalf("it has not ended within twice the deadline: %s", c.said())
			}
			if says := fmt.Sprintf(x.says, all[i].pid); c.ProcessState.ExitCode() != 4 || !strings.Contains(c.stderr.String(), says) {
				t.Errorf("%v, %q is not said: %s", c.ProcessState, says, c.stderr.String())
			}
			s.empty(time.Now().Add(5 * time.Second))
		})
	}
}

// Processes that mpirun has not started are not in one world of MPI, and say so.
func TestMPIWithoutMpirun(t *testing.T) {
	s := withMPI(t)
	all := s.launched(2, filepath.Join("mpi", "train"), "--transport mpi --plan dp=2 --deadline 20s")
	for i, c := range all {
		if !c.wait(time.Now().Add(time.Minute)) || c.ProcessState.ExitCode() != 4 {
			t.Errorf("process %d: %v, %s", i, c.ProcessState, c.said())
		}
	}
	if says := "MPI's world has 1 processes, want 2"; !strings.Contains(all[0].said(), says) {
		t.Errorf("%q is not said: %s", says, all[0].said())
	}
	s.empty(time.Now().Add(5 * time.Second))
}
