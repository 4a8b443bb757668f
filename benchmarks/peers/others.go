package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
)

// startOpenBLAS builds and starts the C program, with the kernel of the same
// instruction set as ours: left alone, old versions take a slow one on new
// processors.
func startOpenBLAS(ours string, threads int) (*turns.Peer, error) {
	core := "SkylakeX"
	if strings.HasSuffix(ours, "avx2") {
		core = "Haswell"
	}
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "openblas")
	build := exec.Command("cc", "-O2", "-o", bin, filepath.Join(sources(), "others", "openblas.c"), "-lopenblas")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s (needs libopenblas-dev): %w\n%s", build, err, text)
	}
	cmd := exec.Command(bin)
	// Idle threads would otherwise spin into our turn.
	cmd.Env = append(turns.Without(os.Environ(), "OPENBLAS_"), "OPENBLAS_CORETYPE="+core, "OPENBLAS_THREAD_TIMEOUT=20", fmt.Sprintf("OPENBLAS_NUM_THREADS=%d", threads))
	p, err := turns.Start(cmd, dir)
	if err == nil && !strings.Contains(p.Banner, core) {
		p.Stop()
		return nil, fmt.Errorf("OpenBLAS runs %q, want its %s kernel", p.Banner, core)
	}
	return p, err
}

// startTorch starts a script in PyTorch, without settings of OpenBLAS that slow
// one of its builds down.
func startTorch(python, script string, threads int) (*turns.Peer, error) {
	cmd := exec.Command(python, filepath.Join(sources(), "others", script), strconv.Itoa(threads))
	// Idle threads would otherwise spin into our turn, and, on a busy machine, while
	// the one that they wait for cannot run.
	cmd.Env = append([]string{"OMP_WAIT_POLICY=passive"}, turns.Without(os.Environ(), "OPENBLAS_")...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("OMP_NUM_THREADS=%d", threads))
	p, err := turns.Start(cmd, "")
	if err != nil {
		return nil, fmt.Errorf("%w (needs a python3 with torch, see -python)", err)
	}
	return p, nil
}

// sources is the directory of this file.
func sources() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}
