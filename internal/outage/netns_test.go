//go:build linux && netns

package outage

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// network is hosts as network namespaces, whose eth0 are plugged into one switch. All of
// them are of this test alone, and gone when it ends.
type network struct {
	*stage
	name  string
	hosts int
}

// newNetwork makes so many hosts. Each has what prepare adds before its eth0 comes, so
// that this is not its first interface.
func newNetwork(t *testing.T, hosts int, prepare ...string) *network {
	n := &network{stage: newStage(t), name: fmt.Sprintf("outage%d", os.Getpid()), hosts: hosts}
	if os.Getuid() != 0 {
		t.Fatal("only root makes network namespaces")
	}
	t.Cleanup(func() {
		for i := range hosts + 1 {
			_ = exec.Command("ip", "netns", "del", n.host(i)).Run() // it may not be there
		}
	})
	n.ip("netns add %s", n.host(0)) // the switch
	n.in(0, "link add switch type bridge")
	n.in(0, "link set switch up")
	for i := 1; i <= hosts; i++ {
		n.ip("netns add %s", n.host(i))
		n.in(i, "link set lo up")
		for _, line := range prepare {
			n.in(i, "%s", line)
		}
		n.in(0, "link add port%d type veth peer name eth0 netns %s", i, n.host(i))
		n.in(0, "link set port%d master switch up", i)
		n.in(i, "link set eth0 up")
		n.in(i, "addr add 10.77.0.%d/24 dev eth0", i)
	}
	return n
}

// host is the namespace of a host, from 1; 0 is the switch.
func (n *network) host(i int) string { return fmt.Sprintf("%s-%d", n.name, i) }

func (n *network) ip(line string, args ...any) {
	n.t.Helper()
	line = fmt.Sprintf(line, args...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

func (n *network) in(i int, line string, args ...any) {
	n.t.Helper()
	n.ip("-n %s %s", n.host(i), fmt.Sprintf(line, args...))
}

// on starts a command on a host, with a name of its own for that.
func (n *network) on(i int, command, line string, environment ...string) *command {
	args := append([]string{"netns", "exec", n.host(i), "unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, fmt.Sprintf("node%d", i), bin + "/" + command}, n.args(line)...)
	return n.run(exec.Command("ip", args...), environment...)
}

// all starts an agent on every host.
func (n *network) all(command, rendezvous, line string) (all []*command) {
	for i := 1; i <= n.hosts; i++ {
		all = append(all, n.on(i, command, fmt.Sprintf("%s --expect-agents %d --agent %d --rendezvous %s", line, n.hosts, i-1, rendezvous), "LOCKSTEP_TOKEN=sixteen bytes and more"))
	}
	return all
}

// end wants all to end in time with a code.
func (n *network) end(all []*command, within time.Duration, code int) (said string) {
	n.t.Helper()
	until := time.Now().Add(within)
	for i, c := range all {
		if !c.wait(until) {
			n.t.Fatalf("agent %d has not ended within %v; all said %s", i, within, n.said(all))
		}
		if got := c.ProcessState.ExitCode(); got != code {
			n.t.Errorf("agent %d ended with %d, want %d: %s", i, got, code, c.said())
		}
	}
	n.empty(until)
	return n.said(all)
}

func (n *network) said(all []*command) (said string) {
	for i, c := range all {
		said += fmt.Sprintf("agent %d: %s\n", i, c.said())
	}
	return said
}

func (n *network) wants(said string, parts ...string) {
	n.t.Helper()
	for _, p := range parts {
		if !strings.Contains(said, p) {
			n.t.Errorf("%q is not said:\n%s", p, said)
		}
	}
}

// reaches waits until the first agent prints something.
func (n *network) reaches(all []*command, what string) {
	n.t.Helper()
	for begun := time.Now(); !strings.Contains(all[0].stdout.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			n.t.Fatalf("%q is not reached: %s", what, n.said(all))
		}
	}
}

const judged = "--contract C-DDP-001,C-ZERO-001 --config nano --plan dp=4 --plan dp=3,zero=2 --deadline 30s"

// Agents on three hosts judge together, whatever interface comes first: one like that of
// a container engine leads nowhere, and has the same address everywhere.
func TestNetnsHosts(t *testing.T) {
	n := newNetwork(t, 3, "link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up")
	n.wants(n.end(n.all("verify", "10.77.0.1:29500", judged), 2*time.Minute, 0), "\nheld: ", "10.77.0.1", "10.77.0.2", "10.77.0.3")
}

// Hosts that have IPv6 alone.
func TestNetnsIPv6(t *testing.T) {
	n := newNetwork(t, 2)
	for i := 1; i <= n.hosts; i++ {
		n.in(i, "addr del 10.77.0.%d/24 dev eth0", i)
		n.in(i, "addr add fd00:77::%d/64 dev eth0 nodad", i)
	}
	n.wants(n.end(n.all("verify", "[fd00:77::1]:29500", judged), 2*time.Minute, 0), "\nheld: ", "fd00:77::2")
}

// A host that has nothing but its loopback interface has agents of its own; one whose
// loopback interface is down says so.
func TestNetnsLoopbackAlone(t *testing.T) {
	n := newNetwork(t, 1)
	n.in(1, "link del eth0")
	n.wants(n.end([]*command{n.on(1, "verify", judged+" --launch procs --agents 2")}, time.Minute, 0), "\nheld: ")
	n.wants(n.end(n.all("verify", "127.0.0.1:29500", judged), time.Minute, 0), "\nheld: ")
	n.in(1, "link set lo down")
	n.wants(n.end([]*command{n.on(1, "train", "--plan dp=2 --launch procs --deadline 5s")}, 20*time.Second, 4), "agent 0 (process ", "did not come within 5s")
}

const endless = "--plan dp=3 --steps 100000 --deadline 6s"

// A host that is unplugged in the middle of a step: all end with 4, who is left names
// its agent, and that one says that it hears nothing.
func TestNetnsUnplugged(t *testing.T) {
	for _, victim := range []int{1, 3} { // the driver's, and another
		t.Run(fmt.Sprintf("host %d", victim), func(t *testing.T) {
			n := newNetwork(t, 3)
			all := n.all("train", "10.77.0.1:29500", endless)
			n.reaches(all, "step 5/")
			n.in(victim, "link set eth0 down")
			said := n.end(all, 12*time.Second, 4)
			t.Log(said)
			if victim == 1 {
				n.wants(said, "agent 1 (", "hears nothing of its driver", "has said nothing for 6s")
				return
			}
			n.wants(all[0].said(), "agent 2 (", "with rank 2) has said nothing for 6s")
			n.wants(all[2].said(), "hears nothing of its driver")
		})
	}
}

// A host that is back soon enough has missed nothing.
func TestNetnsPluggedInAgain(t *testing.T) {
	n := newNetwork(t, 3)
	all := n.all("train", "10.77.0.1:29500", "--plan dp=3 --steps 150 --deadline 20s --fingerprint")
	n.reaches(all, "step 5/")
	n.in(2, "link set eth0 down")
	time.Sleep(2 * time.Second)
	if strings.Contains(all[0].said(), "step 150/") {
		t.Fatal("the run was over before")
	}
	n.in(2, "link set eth0 up")
	said := n.end(all, time.Minute, 0)
	plain := n.start("train", "--plan dp=3 --steps 150 --fingerprint --quiet")
	if !plain.wait(time.Now().Add(time.Minute)) || !strings.Contains(said, plain.stdout.String()) || plain.stdout.String() == "" {
		t.Errorf("it says %s, undisturbed %s", said, plain.said())
	}
}
