package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
)

// other is a library that all-reduces.
type other struct {
	name, says string
	start      func(m *machine, ranks int) (*turns.Peer, error)
}

// openMPI is Open MPI over one of its transports.
func openMPI(btl string) other {
	flags := []string{"--mca", "pml", "ob1", "--mca", "btl", btl + ",self"}
	if btl == "tcp" {
		flags = append(flags, "--mca", "btl_tcp_if_include", "lo")
	}
	start := func(m *machine, ranks int) (*turns.Peer, error) {
		bin, err := m.built()
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp(m.dir, "pipes")
		if err != nil {
			return nil, err
		}
		args := append([]string{"--allow-run-as-root", "--oversubscribe", "-n", strconv.Itoa(ranks)}, flags...)
		return turns.Start(exec.Command("mpirun", append(append(args, placed(ranks)...), bin, dir)...), dir)
	}
	return other{"OpenMPI", "mpirun " + strings.Join(flags, " "), start}
}

// placed is how mpirun places ranks, where each is fastest: on a processor of its own
// while there are enough, and letting others run where there are not.
func placed(ranks int) []string {
	if ranks <= runtime.NumCPU() {
		return []string{"--bind-to", "core"}
	}
	return []string{"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"}
}

// built is Open MPI's side, built once.
func (m *machine) built() (string, error) {
	bin := filepath.Join(m.dir, "allreduce")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	for _, tool := range []string{"mpirun", "mpicc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", errors.New(tool + " is not installed (Debian: openmpi-bin, libopenmpi-dev and gcc)")
		}
	}
	build := exec.Command("mpicc", "-O2", "-o", bin, filepath.Join(sources(), "others", "allreduce.c"))
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, text)
	}
	return bin, nil
}

// gloo is Gloo over TCP, through PyTorch.
func gloo() other {
	return other{"Gloo", "torch.distributed", func(m *machine, ranks int) (*turns.Peer, error) {
		if text, err := exec.Command(m.python, "-c", "import torch").CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return nil, fmt.Errorf("%s has no torch (see -python): %w: %s", m.python, err, lines[len(lines)-1])
		}
		cmd := exec.Command(m.python, filepath.Join(sources(), "others", "gloo.py"), strconv.Itoa(ranks))
		cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=passive")
		return turns.Start(cmd, "")
	}}
}

// sources is the directory of this file.
func sources() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}
