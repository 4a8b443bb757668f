package kubernetes

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAgents runs what the pods run, as processes of this host: with the arguments of
// the manifest, the variables that a pod has, and the first pod's name replaced by
// this host's.
func TestAgents(t *testing.T) {
	m, err := Read([]byte(manifest(t)))
	if err != nil {
		t.Fatal(err)
	}
	verify := filepath.Join(t.TempDir(), "verify")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", verify, "./cmd/verify")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	pod := &m.Job.Spec.Template.Spec.Containers[0]
	here := strings.NewReplacer(m.Job.Name+"-0."+m.Service.Name+":29500", "127.0.0.1:"+port(t))
	agents := make([]*exec.Cmd, value(m.Job.Spec.Completions))
	said := make([]bytes.Buffer, len(agents))
	for i := range agents {
		args := append([]string{}, pod.Args...)
		for j := range args {
			args[j] = here.Replace(args[j])
		}
		agents[i] = exec.CommandContext(ctx, verify, append(args, "--contract", "C-TP-001", "--deadline", "60s")...)
		agents[i].Env = append(os.Environ(), "JOB_COMPLETION_INDEX="+strconv.Itoa(i))
		for _, e := range pod.Env {
			if e.Value = e.Name + "=" + e.Value; e.ValueFrom != nil {
				e.Value += "a secret of these tests alone"
			}
			agents[i].Env = append(agents[i].Env, e.Value)
		}
		agents[i].Stdout, agents[i].Stderr = &said[i], &said[i]
		if err := agents[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range agents {
		if err := a.Wait(); err != nil {
			t.Errorf("agent %d: %v\n%s", i, err, &said[i])
		}
	}
	if out := said[0].String(); !strings.Contains(out, "processes, 4 agents") || !strings.Contains(out, "held: 1 contract") {
		t.Errorf("agent 0 said:\n%s", out)
	}
}

// port is one that nobody uses now.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
