package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const secretText = "a secret of more than sixteen bytes"

// A token is read from a file for its user's eyes alone, or a variable; what is wrong
// with it is said, the token never.
func TestSecret(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes")
	}
	dir := t.TempDir()
	file := func(name, holds string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(holds), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", secretText+"\n", 0o400)
	link := filepath.Join(dir, "link") // as Kubernetes mounts secrets
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ file, variable, says string }{
		{good, "", ""},
		{link, "", ""},
		{"", secretText, ""},
		{file("open", secretText, 0o640), "", "has mode 0640, so that others can read it: chmod 600"},
		{file("short", "short", 0o600), "", "holds 5 bytes, must hold 16 to 4096; make one by head -c 32 /dev/urandom"},
		{file("long", strings.Repeat("x", maxToken+1), 0o600), "", "holds 4097 bytes"},
		{good, secretText, "LOCKSTEP_TOKEN is set too; one of them must go"},
		{filepath.Join(dir, "none"), "", "no such file"},
		{dir, "", "is no file, and must be one"},
	} {
		if x.variable != "" {
			t.Setenv(tokenVariable, x.variable)
		} else {
			os.Unsetenv(tokenVariable)
		}
		got, err := secret(x.file)
		switch {
		case x.says == "" && (err != nil || string(got) != secretText):
			t.Errorf("%+v: %q, %v", x, got, err)
		case x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)):
			t.Errorf("%+v: %v", x, err)
		case err != nil && strings.Contains(err.Error(), secretText):
			t.Errorf("%v", err)
		}
	}
}

// Agents of a host that something else has started share its processors and its memory,
// by the number that are there, which is none of a flag: those on other hosts do not
// count. Those that a driver starts are told by their environment.
func TestAgentsShareTheirHost(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	all := Memory()
	for here, processors := range map[int]int{1: 16, 2: 8, 3: 5, 8: 2, 64: 2} {
		runtime.GOMAXPROCS(16)
		var p Placement
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.String("data", "", "")
		p.Flags(f, "2")
		if err := f.Parse(strings.Fields("--expect-agents 64 --agent 1 --rendezvous 127.0.0.1:29500")); err != nil {
			t.Fatal(err)
		}
		if err := p.Check(f); err != nil {
			t.Fatal(err)
		}
		if env := p.Share(64); env != nil {
			t.Errorf("its driver tells it %v", env)
		}
		p.found.Share(here)
		if got := runtime.GOMAXPROCS(0); got != processors {
			t.Errorf("%d agents: %d processors, want %d", here, got, processors)
		}
		if got := debug.SetMemoryLimit(-1); all > 0 && got != all/int64(here) {
			t.Errorf("%d agents: %d bytes of %d", here, got, all)
		}
		if p.Memory() != all {
			t.Errorf("%d agents: in all %d bytes of %d", here, p.Memory(), all)
		}
	}
	runtime.GOMAXPROCS(16)
	want := []string{"GOMAXPROCS=4", fmt.Sprintf("GOMEMLIMIT=%d", all/4)}
	if all == 0 {
		want = want[:1]
	}
	if env := (&Placement{}).Share(4); !slices.Equal(env, want) {
		t.Errorf("%v, want %v", env, want)
	}
}

// What is said of the network without agents, or of an agent without a place to meet, is
// refused; launchers of old may pass the local rank in either spelling, and the variable
// counts.
func TestNetworkFlags(t *testing.T) {
	t.Setenv("WORLD_SIZE", "2")
	t.Setenv("RANK", "1")
	t.Setenv("LOCAL_RANK", "1")
	t.Setenv("MASTER_PORT", "1")
	for args, says := range map[string]string{
		"--agent 1":                                             "--agent: belongs to --expect-agents",
		"--ports 1-2":                                           "--ports: belongs to --expect-agents",
		"--expect-agents 2 --agent 1":                           "agent=1: --rendezvous HOST:PORT must say where agent 0 listens",
		"--expect-agents 2 --agent -1":                          "agent=-1: must be from 0",
		"--expect-agents 2 --ports 2-1":                         `ports "2-1": must be a range`,
		"--expect-agents 2 --ports 29501":                       "",
		"--expect-agents 2 --ports=":                            "ports: is given, and empty",
		"--expect-agents 2 --token-file=":                       "token-file: is given, and empty",
		"--expect-agents 2 --interface=":                        "interface: is given, and empty",
		"--expect-agents 2 --rendezvous LocalHost:29500":        "",
		"--expect-agents 2 --rendezvous 127.0.0.1:0":            "the others could not know which port",
		"--expect-agents 2 --rendezvous 10.0.0.1:29500":         "must know a secret",
		"--expect-agents 2 --rendezvous 127.0.0.1:29500":        "",
		"--expect-agents 2 --agent 0 --rendezvous [::1]:295":    "", // before what a launcher says
		"--expect-agents 2":                                     "",
		"--expect-agents 2 --local-rank=1":                      "",
		"--expect-agents 2 --local_rank=1":                      "",
		"--expect-agents 2 --tls-cert x":                        "must be given together",
		"--expect-agents 2 --tls-cert x --tls-key y --tls-ca z": "tls-key y: stat y: no such file",
		"--expect-agents 2 --local-rank=0":                      "local-rank=0: LOCAL_RANK=1 says otherwise",
	} {
		var p Placement
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.String("data", "", "")
		p.Flags(f, "2")
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := p.Check(f)
		if (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
		if err == nil && (p.found.Agent == 0) != strings.Contains(args, "--agent 0") {
			t.Errorf("%s: %v", args, p.found)
		}
	}
	t.Setenv(rendezvousVariable, "127.0.0.1:0")
	var p Placement
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.String("data", "", "")
	p.Flags(f, "2")
	_ = f.Parse([]string{"--expect-agents", "2"})
	if err := p.Check(f); err == nil || !strings.Contains(err.Error(), `rendezvous "127.0.0.1:0"`) {
		t.Errorf("%v", err)
	}
}
