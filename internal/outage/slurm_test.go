//go:build linux && slurm

package outage

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var slurmContracts = flag.String("contracts", "C-DDP-001,C-TP-001", "contracts that TestSlurmStep judges; all are too many for a short test")

// cluster is a Slurm of this test's own: a controller and two nodes, all on this host,
// with ports, a key and directories of their own.
type cluster struct {
	*stage
	dir     string
	daemons []*exec.Cmd
}

const slurmConf = `ClusterName=outage
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=PORT0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=DIR/munge.socket
CredType=cred/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool-%n
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=n1 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT1 CPUs=64 CoresPerSocket=64 Sockets=1
NodeName=n2 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT2 CPUs=64 CoresPerSocket=64 Sockets=1
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
`

// newCluster starts one, which the end of the test stops.
func newCluster(t *testing.T) *cluster {
	for _, program := range []string{"munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "sinfo", "squeue", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: install slurmctld, slurmd, slurm-client and munge, and run this as root", err)
		}
	}
	dir, err := os.MkdirTemp("", "outage-slurm-") // short: a socket lies there
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{stage: newStage(t), dir: dir}
	t.Cleanup(c.stop)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.NewReplacer("HOST", host, "DIR", dir)
	text := conf.Replace(slurmConf)
	for i := range 3 {
		text = strings.Replace(text, fmt.Sprintf("PORT%d", i), strconv.Itoa(freePort(t)), 1)
	}
	key := make([]byte, 1024)
	rand.Read(key) // never fails
	for name, content := range map[string]string{"slurm.conf": text, "munge.key": string(key)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	c.daemon("munged", "-F", "--force", "--socket="+in("munge.socket"), "--key-file="+in("munge.key"), "--log-file="+in("munged.log"), "--pid-file="+in("munged.pid"), "--seed-file="+in("munged.seed"))
	c.until("munged listens", func() bool { _, err := os.Stat(in("munge.socket")); return err == nil })
	c.daemon("slurmctld", "-D", "-f", in("slurm.conf"))
	for _, node := range []string{"n1", "n2"} {
		// With a name of its own: tasks of two hosts may have the same number on theirs.
		c.daemon("unshare", "--uts", "sh", "-c", `hostname "$0" && exec slurmd -D -N "$0" -f "$1"`, node, in("slurm.conf"))
	}
	c.until("two nodes are idle", func() bool {
		out, _ := c.tool("sinfo", "-h", "-o", "%D %t").Output()
		return strings.TrimSpace(string(out)) == "2 idle"
	})
	return c
}

// daemon starts a program that stays in the foreground.
func (c *cluster) daemon(name string, args ...string) {
	log, err := os.Create(filepath.Join(c.dir, fmt.Sprintf("%s-%d.out", name, len(c.daemons))))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.daemons = append(c.daemons, cmd)
}

// stop cancels what runs and ends the daemons, by their ids.
func (c *cluster) stop() {
	if len(c.daemons) > 1 {
		_ = c.tool("scancel", "--full", "--user=root").Run()
		c.until("no job is left", func() bool {
			out, err := c.tool("squeue", "-h").Output()
			return err != nil || len(out) == 0
		})
	}
	if c.t.Failed() {
		for _, name := range []string{"slurmctld-1.out", "slurmd-2.out"} {
			b, _ := os.ReadFile(filepath.Join(c.dir, name))
			c.t.Logf("%s:\n%s", name, b[max(0, len(b)-2000):])
		}
	}
	for i := len(c.daemons) - 1; i >= 0; i-- {
		d := c.daemons[i]
		_ = d.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = d.Process.Kill() })
		_ = d.Wait()
		late.Stop()
	}
	_ = os.RemoveAll(c.dir)
}

// until waits for something to be so.
func (c *cluster) until(what string, is func() bool) {
	for begun := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			c.t.Errorf("it is not so that %s", what)
			return
		}
	}
}

// tool is one of Slurm's programs.
func (c *cluster) tool(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+filepath.Join(c.dir, "slurm.conf"))
	return cmd
}

// begin starts one of them with a line of which BIN is where the commands are.
func (c *cluster) begin(name, line string, environment ...string) *command {
	line = strings.ReplaceAll(line, "BIN", bin)
	return c.run(exec.Command(name, c.args(line)...), append(environment, "SLURM_CONF="+filepath.Join(c.dir, "slurm.conf"))...)
}

// end waits for its end and wants an exit code, and something to be said.
func (c *cluster) end(cmd *command, within time.Duration, code int, says ...string) {
	c.t.Helper()
	if !cmd.wait(time.Now().Add(within)) {
		c.t.Fatalf("%s has not ended within %v", cmd.Args, within)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("%s ended with %d, want %d: %s", cmd.Args, got, code, cmd.said())
	}
	for _, s := range says {
		if !strings.Contains(cmd.said(), s) {
			c.t.Errorf("%s does not say %q: %s", cmd.Args, s, cmd.said())
		}
	}
}

// Contracts are held by the tasks of a step, of which the first prints and all have its
// exit code. A step counts, not the allocation around it.
func TestSlurmStep(t *testing.T) {
	c := newCluster(t)
	c.end(c.begin("srun", "-N 1 -n 4 BIN/verify --expect-agents 4 --deadline 60s --contract "+*slurmContracts), 10*time.Minute, 0,
		"processes, 4 agents of Slurm step: rank r is in agent r mod 4", "\nheld: ")
	verify := "BIN/verify --deadline 30s --contract C-DDP-001 --config nano --plan dp=2 --expect-agents "
	c.end(c.begin("salloc", "-N 1 -n 4 srun -n 2 "+verify+"2"), time.Minute, 0, "8 held")
	c.end(c.begin("srun", "-N 1 -n 2 "+verify+"3"), time.Minute, 2, "expect-agents=3: Slurm step has started 2")
	c.empty(time.Now().Add(5 * time.Second))
}

// Tasks on two nodes meet where they are told to, with a token that all of them have.
func TestSlurmNodes(t *testing.T) {
	c := newCluster(t)
	line := fmt.Sprintf("-N 2 -n 4 BIN/verify --deadline 30s --contract C-DDP-001 --config nano --plan dp=4 --expect-agents 4 --rendezvous 127.0.0.1:%d", freePort(t))
	c.end(c.begin("srun", line, "LOCKSTEP_TOKEN=sixteen bytes and more"), time.Minute, 0, "agents of Slurm step", "n1 at 127.0.0.1", "n2 at 127.0.0.1", "\nheld: ")
	c.end(c.begin("srun", strings.Replace(line, "--expect-agents 4", "--expect-agents 5", 1)), time.Minute, 2, "expect-agents=5: Slurm step has started 4")
	c.empty(time.Now().Add(5 * time.Second))
}

// The variables of an allocation and those of a batch script start nothing.
func TestSlurmAllocationAlone(t *testing.T) {
	c := newCluster(t)
	verify := "BIN/verify --contract C-DDP-001 --expect-agents 2"
	c.end(c.begin("salloc", "-N 1 -n 2 "+verify), time.Minute, 2, "expect-agents=2: no launcher has started this process")
	script := c.path("job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+strings.ReplaceAll(verify, "BIN", bin)+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.end(c.begin("sbatch", "--wait -N 1 -n 2 -o DIR/out "+script), time.Minute, 2)
	if b, err := os.ReadFile(c.path("out")); err != nil || !strings.Contains(string(b), "expect-agents=2: ") {
		t.Errorf("%v: %s", err, b)
	}
}

// A task that is killed ends the others with 4, by themselves; a step that is cancelled
// leaves no process.
func TestSlurmStepIsEnded(t *testing.T) {
	c := newCluster(t)
	train := "BIN/train --expect-agents 3 --plan dp=4 --steps 100000 --deadline 10s"
	running := func(cmd *command) {
		c.until("3 tasks and the driver's agent run", func() bool { return strings.Contains(cmd.said(), "step 3/") })
	}
	cmd := c.begin("srun", "-N 1 -n 3 --kill-on-bad-exit=0 "+train)
	running(cmd)
	killed := 0
	for _, p := range c.processes() {
		if p.task == 1 && p.works {
			killed = p.pid
		}
	}
	if killed == 0 {
		t.Fatalf("no task 1 among %v", c.processes())
	}
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.end(cmd, 2*deadline, 4, fmt.Sprintf("agent 1 (process %d, with rank 1) ", killed))
	c.empty(time.Now().Add(5 * time.Second))

	cmd = c.begin("srun", "-N 1 -n 3 "+train)
	running(cmd)
	if out, err := c.tool("scancel", "--full", "--user=root").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !cmd.wait(time.Now().Add(2*deadline)) || cmd.ProcessState.ExitCode() == 0 {
		t.Errorf("the cancelled step ended with %v", cmd.ProcessState)
	}
	c.empty(time.Now().Add(2 * deadline))
}
