//go:build unix

package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/internal/authority"
)

const testToken = "a token of a test, long enough"

// free is a port of an address that nobody has now.
func free(t *testing.T, host string) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skipf("no %s here: %v", host, err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// apart is agent 0 of some that meet at places.
func apart(t *testing.T, agents int, places ...string) Options {
	t.Helper()
	o := options(agents, ordinary)
	o.Found = launched(t, 0, agents)
	o.Found.Places, o.Found.Network = places, Network{Token: []byte(testToken)}
	return o
}

// elsewhere starts an agent as on another host, with more variables.
func elsewhere(t *testing.T, o Options, n int, as string, more ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Executable(), as)
	cmd.Env = append(os.Environ(), "TEST_LAUNCHED="+t.Name(), fmt.Sprintf("TEST_AGENT=%d", n), fmt.Sprintf("TEST_AGENTS=%d", o.Agents), "TEST_TOKEN="+testToken,
		fmt.Sprintf("TEST_HOST=other%d", n), "TEST_PLACES="+strings.Join(o.Found.Places, " "))
	cmd.Env = append(cmd.Env, more...)
	cmd.Stderr = new(strings.Builder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}

// secured gives agent 0 a certificate, and says which one the others have.
func secured(t *testing.T, by *authority.Authority, o *Options) []string {
	t.Helper()
	cert, key := by.Issue(time.Now().Add(time.Hour))
	config, err := TLS(cert, key, by.File)
	if err != nil {
		t.Fatal(err)
	}
	o.Found.Network.TLS = config
	o.Environment = []string{"TEST_TLS=" + cert + " " + key + " " + by.File}
	cert, key = by.Issue(time.Now().Add(time.Hour))
	return []string{"TEST_TLS=" + cert + " " + key + " " + by.File}
}

// Agents of several hosts meet where they are told, by any kind of address, and give
// the bits of one process; the driver knows who is where, and all end as it says.
func TestHostsMeet(t *testing.T) {
	places := map[string][]string{"IPv4": {free(t, "127.0.0.1")}, "a name": {strings.Replace(free(t, "127.0.0.1"), "127.0.0.1", "localhost", 1)}}
	if ln, err := net.Listen("tcp", "[::1]:0"); err == nil {
		ln.Close()
		places["IPv6"] = []string{free(t, "::1")}
	}
	on := "lo"
	for _, l := range locals() { // an address of a link: this machine may have none
		if l.ip.Is6() && l.ip.IsLinkLocalUnicast() && !l.down {
			_, port, _ := net.SplitHostPort(free(t, "127.0.0.1"))
			places["a link"] = []string{net.JoinHostPort(l.ip.String(), port)}
			on = l.on
			break
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	go func() { // of somebody else, who speaks another protocol
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "SSH-2.0-x\r\n")
			c.Close()
		}
	}()
	ca := authority.New(t)
	places["TLS"] = []string{free(t, "127.0.0.1")}
	places["the second port"] = []string{taken.Addr().String(), free(t, "127.0.0.1")}
	o := order{Plan: "dp=4,zero=1", Steps: 3}
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	want, err := launch.Local(t.Context(), cfg, data.Default(), onRef())
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range places {
		t.Run(name, func(t *testing.T) {
			opts, via := apart(t, 3, at...), "lo"
			if name == "a link" {
				via = on
			}
			var more []string
			if name == "TLS" {
				more = secured(t, ca, &opts)
			}
			others := []*exec.Cmd{elsewhere(t, opts, 1, ordinary, more...), elsewhere(t, opts, 2, ordinary, more...)}
			team, err := Start(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			out, err := team.Run(t.Context(), o.task(t))
			if err != nil {
				t.Fatal(err)
			}
			a, _ := spec.FingerprintAt(out.History, 2)
			if b, _ := spec.FingerprintAt(want.History, 2); a != b {
				t.Errorf("%s, in one process %s", a, b)
			}
			if h := out.History.Origin(1).Host; h != "other1" {
				t.Errorf("rank 1 was on %q", h)
			}
			if hosts := strings.Join(team.Hosts(), "; "); !strings.Contains(hosts, "other2 at ") || runtime.GOOS == "linux" && strings.Count(hosts, "(interface "+via+"): agent ") != 3 {
				t.Errorf("hosts %s", hosts)
			}
			team.Close(3)
			for i, cmd := range others {
				if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
					t.Errorf("agent %d ended with %d", i+1, cmd.ProcessState.ExitCode())
				}
			}
		})
	}
}

// Who does not know the token, says that its local rank is another one's, is of another
// program, or is not there, is named, and the reason is.
func TestHostsRefuse(t *testing.T) {
	for name, x := range map[string]struct {
		as   string
		env  []string
		says string
		told string // to the other
	}{
		"token":       {ordinary, []string{"TEST_TOKEN=another token of sufficient length"}, "agent 1 did not come within 2s; last refused: 127.0.0.1", "the token does not fit"},
		"certificate": {ordinary, nil, "agent 1 did not come within 2s; last refused: 127.0.0.1", "certificate signed by unknown authority"},
		"local rank":  {ordinary, []string{"TEST_HOST=here", "TEST_LOCAL=0"}, "was refused: local rank 0 of host here is that of agent", "agent 1"},
		"program":     {stranger, nil, "on other1) was refused: program and configuration is another program there and a program here", "another program there"},
		"job":         {ordinary, []string{"TEST_LAUNCHED=another job"}, "run is a test another job there and a test TestHostsRefuse/job here", ""},
	} {
		t.Run(name, func(t *testing.T) {
			opts := apart(t, 3, free(t, "127.0.0.1"))
			opts.Found.Local, opts.Found.Network.Host = 0, "other2"
			opts.Deadline = 2 * time.Second
			opts.Environment = nil
			var secret []string
			if name == "certificate" {
				secret = secured(t, authority.New(t), &opts)
				x.env = secured(t, authority.New(t), &Options{Found: &Found{}})
			}
			one := elsewhere(t, opts, 1, x.as, x.env...)
			elsewhere(t, opts, 2, ordinary, append(secret, "TEST_HOST=here", "TEST_LOCAL=0")...)
			team, err := Start(t.Context(), opts)
			if err == nil {
				team.Close(0)
			}
			if err == nil || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v, want %q", err, x.says)
			}
			if _ = one.Wait(); one.ProcessState.ExitCode() != 4 {
				t.Errorf("it ended with %d", one.ProcessState.ExitCode())
			}
			if said := fmt.Sprint(one.Stderr); !strings.Contains(said, x.told) {
				t.Errorf("it says %q, want %q", said, x.told)
			}
		})
	}
}

// What a host has is shared by the agents that are on it, as many as have come, and by no
// others; what the driver's own host has by its agent too.
func TestAgentsShareTheirHost(t *testing.T) {
	for name, x := range map[string]struct {
		places []string
		hosts  []string // of agents from 1 on
		want   []int
	}{
		"three hosts":  {[]string{free(t, "127.0.0.1")}, []string{"b", "c", "b", "b"}, []int{3, 1, 3, 3}},
		"with agent 0": {[]string{free(t, "127.0.0.1")}, []string{"", "b", ""}, []int{3, 1, 3}},
		"one host":     {nil, []string{"", "", ""}, []int{4, 4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := apart(t, len(x.hosts)+1, x.places...)
			var others []*exec.Cmd
			for i, host := range x.hosts {
				others = append(others, elsewhere(t, opts, i+1, ordinary, "TEST_HOST="+host))
			}
			team, err := Start(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			team.Close(0)
			for i, cmd := range others {
				_ = cmd.Wait() // what it has said counts
				if said := fmt.Sprint(cmd.Stderr); said != fmt.Sprintf("one of %d here\n", x.want[i]) {
					t.Errorf("agent %d: %s, want %d", i+1, said, x.want[i])
				}
			}
		})
	}
}

// A driver that is stopped, as one that is cut off, is missed by the agents of other
// hosts and of its own; and so is one that is killed.
func TestHostsMissTheirDriver(t *testing.T) {
	for name, at := range map[string][]string{"apart": {free(t, "127.0.0.1")}, "one host": nil} {
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			t.Run(name+", "+signal.String(), func(t *testing.T) { missed(t, signal, at) })
		}
	}
}

func missed(t *testing.T, signal syscall.Signal, at []string) {
	cmd := exec.Command(Executable(), append([]string{driver}, at...)...)
	cmd.Env = append(os.Environ(), "TEST_NAME="+t.Name())
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	other := elsewhere(t, apart(t, 2, at...), 1, ordinary)
	var pid int
	if _, err := fmt.Fscanln(pipe, &pid); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // the other process, and two directories
		var line string
		if _, err := fmt.Fscanln(pipe, &line); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			defer func() {
				if _, err := os.Stat(filepath.Dir(line)); len(at) == 0 && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", line, err)
				}
			}()
		}
	}
	begun := time.Now()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- other.Wait() }()
	select {
	case <-done:
	case <-time.After(12 * time.Second):
		t.Fatal("the agent goes on")
	}
	if code, took := other.ProcessState.ExitCode(), time.Since(begun); code != 4 || took > 10*time.Second {
		t.Errorf("it ended with %d after %v", code, took)
	}
}

// An agent of another host that is killed in the middle of a run is named with its host.
func TestHostsLose(t *testing.T) {
	opts := apart(t, 2, free(t, "127.0.0.1"))
	other := elsewhere(t, opts, 1, ordinary)
	team, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	task := order{Plan: "dp=2", Steps: 100000}.task(t)
	task.Progress = func(p train.Progress) {
		if p.Step == 3 {
			_ = other.Process.Kill()
		}
	}
	_, err = team.Run(t.Context(), task)
	team.Close(4)
	var lost *Lost
	if !errors.As(err, &lost) || lost.Agent != 1 || !strings.Contains(err.Error(), fmt.Sprintf("agent 1 (process %d on other1, with rank 1) ended without a word", other.Process.Pid)) {
		t.Errorf("%v", err)
	}
}

// The port of the rendezvous, and those of ranks, are somebody's: who has one is said.
func TestTakenPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), apart(t, 2, ln.Addr().String()))
	for _, err := range []error{err, func() error { _, err := listen(netip.MustParseAddr("127.0.0.1"), Ports{port, port}); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%v", err)
		}
		if runtime.GOOS == "linux" && !strings.Contains(fmt.Sprint(err), fmt.Sprintf("port %d is of process %d (", port, os.Getpid())) {
			t.Errorf("%v", err)
		}
	}
	ip := netip.MustParseAddr("127.0.0.1")
	for n := range 50 { // the ports beside it may be somebody's too
		if port+n+1 > maxPort {
			break
		}
		if second, err := listen(ip, Ports{port, port + n + 1}); err == nil {
			defer second.Close()
			if got := second.Addr().(*net.TCPAddr).Port; got <= port || got > port+n+1 {
				t.Errorf("port %d of %d-%d", got, port, port+n+1)
			}
			break
		}
	}
}

// A directory that is not the same on all hosts is named, with the host that has
// another one, before anything is trained; one that all share is left as it was.
func TestHostsShareDirectories(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	for _, shared := range []bool{true, false} {
		opts := apart(t, 2, free(t, "127.0.0.1"))
		opts.Shared = []string{here}
		dir := there
		if shared {
			dir = here
		}
		other := elsewhere(t, opts, 1, ordinary, "TEST_SHARED="+dir)
		team, err := Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = team.Run(t.Context(), order{Plan: "dp=2", Steps: 200}.task(t))
		team.Close(4)
		if says := "on other1, with rank 1) directory " + there + ": is not that of agent 0's host"; shared != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("shared %v: %v", shared, err)
		}
		if _ = other.Wait(); other.ProcessState.ExitCode() != 4 {
			t.Errorf("the other ended with %v", other.ProcessState)
		}
		if left, _ := os.ReadDir(here); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
}
