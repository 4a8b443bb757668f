package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// peer is a process that answers each request with nanoseconds per call.
type peer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	banner string // its first line
	dir    string // removed at the end
}

func start(cmd *exec.Cmd, dir string) (*peer, error) {
	p := &peer{cmd: cmd, dir: dir}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, fmt.Errorf("%s: no answer: %w", cmd.Path, cmd.Wait())
	}
	p.banner = p.out.Text()
	return p, nil
}

// ask is the time of one call.
func (p *peer) ask(request string, reps int) (ns float64, err error) {
	if _, err := fmt.Fprintf(p.in, "%s %d\n", request, reps); err != nil {
		return 0, err
	}
	if !p.out.Scan() {
		return 0, fmt.Errorf("%s: no answer to %q", p.cmd.Path, request)
	}
	return strconv.ParseFloat(p.out.Text(), 64)
}

func (p *peer) stop() {
	p.in.Close()
	p.cmd.Wait()
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// startOpenBLAS builds and starts the C program, with the kernel of the same
// instruction set as ours: left alone, old versions take a slow one on new
// processors.
func startOpenBLAS(ours string, threads int) (*peer, error) {
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
	cmd.Env = append(without(os.Environ(), "OPENBLAS_"), "OPENBLAS_CORETYPE="+core, "OPENBLAS_THREAD_TIMEOUT=20", fmt.Sprintf("OPENBLAS_NUM_THREADS=%d", threads))
	p, err := start(cmd, dir)
	if err == nil && !strings.Contains(p.banner, core) {
		p.stop()
		return nil, fmt.Errorf("OpenBLAS runs %q, want its %s kernel", p.banner, core)
	}
	return p, err
}

// startTorch starts a script in PyTorch, without settings of OpenBLAS that slow
// one of its builds down.
func startTorch(python, script string, threads int) (*peer, error) {
	cmd := exec.Command(python, filepath.Join(sources(), "others", script), strconv.Itoa(threads))
	// Idle threads would otherwise spin into our turn, and, on a busy machine, while
	// the one that they wait for cannot run.
	cmd.Env = append([]string{"OMP_WAIT_POLICY=passive"}, without(os.Environ(), "OPENBLAS_")...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("OMP_NUM_THREADS=%d", threads))
	p, err := start(cmd, "")
	if err != nil {
		return nil, fmt.Errorf("%w (needs a python3 with torch, see -python)", err)
	}
	return p, nil
}

// without leaves out the variables of a prefix.
func without(env []string, prefix string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, prefix) {
			out = append(out, e)
		}
	}
	return out
}

// sources is the directory of this file.
func sources() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}
