package launchers

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain makes the test binary the launcher that it is called as.
func TestMain(m *testing.M) {
	if l, ok := launchers()[filepath.Base(os.Args[0])]; ok {
		os.Exit(l.run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// launcher stands in for a program that starts agents. It knows the options that the
// examples give it, no others, and sets the variables of the program.
type launcher struct {
	options []string // "-" before the name of one without a value
	agents  string   // option that says how many
	// variables are those of agent i of n.
	variables func(options map[string]string, i, n int) []string
	any       int // exit code in place of any but 0; 0 for the largest
}

// odd is the exit code of an option that is not known.
const odd = 64

func launchers() map[string]launcher {
	return map[string]launcher{
		"srun": {options: []string{"ntasks"}, agents: "ntasks", variables: func(_ map[string]string, i, n int) []string {
			return []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", each("SLURM_PROCID", i), each("SLURM_LOCALID", i), each("SLURM_STEP_NUM_TASKS", n),
				each("SLURM_NTASKS", n), "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=localhost", "SLURM_NODEID=0"}
		}},
		"mpirun": {options: []string{"host", "n", "x"}, agents: "n", variables: func(_ map[string]string, i, n int) []string {
			return []string{each("OMPI_COMM_WORLD_RANK", i), each("OMPI_COMM_WORLD_SIZE", n), each("OMPI_COMM_WORLD_LOCAL_RANK", i),
				each("OMPI_COMM_WORLD_LOCAL_SIZE", n), "PMIX_NAMESPACE=7"}
		}},
		"torchrun": {options: []string{"nnodes", "nproc-per-node", "max-restarts", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "-no-python"}, agents: "nproc-per-node",
			any: 1, variables: func(o map[string]string, i, n int) []string {
				host, port, _ := strings.Cut(o["rdzv-endpoint"], ":")
				return []string{each("RANK", i), each("LOCAL_RANK", i), each("WORLD_SIZE", n), each("LOCAL_WORLD_SIZE", n), "GROUP_RANK=0",
					"MASTER_ADDR=" + host, "MASTER_PORT=" + port, "TORCHELASTIC_RUN_ID=" + o["rdzv-id"], "TORCHELASTIC_USE_AGENT_STORE=True"}
			}},
	}
}

func each(name string, n int) string { return fmt.Sprintf("%s=%d", name, n) }

// run starts the agents and is their exit code.
func (l launcher) run(args []string) int {
	set := flag.NewFlagSet("launcher", flag.ContinueOnError)
	options, bare := map[string]string{}, false
	for _, o := range l.options {
		if name, ok := strings.CutPrefix(o, "-"); ok {
			set.BoolVar(&bare, name, false, "")
			continue
		}
		set.Func(o, "", func(v string) error { options[o] = v; return nil })
	}
	n := 0
	if err := set.Parse(args); err != nil || set.NArg() == 0 {
		return odd
	}
	if _, err := fmt.Sscan(options[l.agents], &n); err != nil {
		return odd
	}
	agents := make([]*exec.Cmd, n)
	for i := range agents {
		agents[i] = exec.Command(set.Arg(0), set.Args()[1:]...)
		agents[i].Stdout, agents[i].Stderr = os.Stdout, os.Stderr
		agents[i].Env = append(os.Environ(), l.variables(options, i, n)...)
		if err := agents[i].Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return odd
		}
	}
	code := 0
	for _, a := range agents {
		err := a.Wait()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			code = max(code, failed.ExitCode())
		} else if err != nil {
			code = odd
		}
	}
	if code != 0 && l.any != 0 {
		return l.any
	}
	return code
}
