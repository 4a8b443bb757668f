//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe into which nobody writes keeps nobody: it is refused before it is opened.
func TestPipeIsNoSecret(t *testing.T) {
	pipe, file := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		n    network
		says string
	}{
		{network{token: pipe}, "token-file " + pipe + ": is no file"},
		{network{cert: pipe, key: file, authority: file}, "tls-cert " + pipe + ": is no file"},
		{network{cert: file, key: pipe, authority: file}, "tls-key " + pipe + ": is no file"},
		{network{cert: file, key: file, authority: pipe}, "tls-ca " + pipe + ": is no file"},
	} {
		_, err := secret(x.n.token)
		if err == nil {
			_, err = x.n.secure()
		}
		if err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v, want %q", err, x.says)
		}
	}
}

// What says that this process is an agent, where no driver has started it, is refused in
// words.
func TestStraySeat(t *testing.T) {
	for seat, says := range map[string]string{
		"garbage": "LOCKSTEP_AGENT",
		`{"Agent":0,"Agents":2,"Join":1000000000,"Silence":1000000000,"Driver":"127.0.0.1:1"}`: "no driver has started this process",
	} {
		var stderr strings.Builder
		cmd := working("0")
		cmd.Env = append(cmd.Env, "LOCKSTEP_AGENT="+seat)
		cmd.Stderr = &stderr
		_ = cmd.Run() // its code is asked for below
		if code := cmd.ProcessState.ExitCode(); code != CannotRun || !strings.Contains(stderr.String(), says) {
			t.Errorf("LOCKSTEP_AGENT=%s: %d %q, want %q", seat, code, stderr.String(), says)
		}
	}
}
