//go:build linux

package outage

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// bin is where the commands are that the tests run.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run builds the commands of this tree and runs the tests.
func run(m *testing.M) int {
	root, err := source.Root()
	if err == nil {
		bin, err = os.MkdirTemp("", "outage-bin-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/train", "./cmd/verify")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, out)
		return 1
	}
	return m.Run()
}

// markVariable is what all processes of a stage have in their environment.
const markVariable = "OUTAGE_MARK"

// stage is where a run and what is done to it happen: a directory, and the processes
// that carry its mark.
type stage struct {
	t    testing.TB
	mark string
	dir  string // of what the run writes; temporary files are in tmp below it
}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir()}
	s.mark = markVariable + "=" + s.dir
	if err := os.Mkdir(s.tmp(), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range s.processes() { // of a test that has failed
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	return s
}

func (s *stage) tmp() string             { return filepath.Join(s.dir, "tmp") }
func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }
func (s *stage) args(line string) []string {
	return strings.Fields(strings.ReplaceAll(line, "DIR", s.dir))
}

// command is one that was started on a stage.
type command struct {
	*exec.Cmd
	stdout, stderr buffer
	begun          time.Time
	ended          chan struct{} // closed when it has, at
	at             time.Time
}

// start starts a command of bin with arguments of which DIR is the stage's directory.
func (s *stage) start(name, line string, environment ...string) *command {
	s.t.Helper()
	return s.run(exec.Command(filepath.Join(bin, name), s.args(line)...), environment...)
}

// run starts any command.
func (s *stage) run(cmd *exec.Cmd, environment ...string) *command {
	s.t.Helper()
	c := &command{Cmd: cmd, ended: make(chan struct{})}
	c.Env = append(os.Environ(), append([]string{s.mark, "TMPDIR=" + s.tmp()}, environment...)...)
	c.Stdout, c.Stderr, c.begun = &c.stdout, &c.stderr, time.Now()
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = c.Wait() // how it ended is in ProcessState
		c.at = time.Now()
		close(c.ended)
	}()
	return c
}

// launched are the processes that a launcher would start: so many agents, which learn of
// each other by the variables of torchrun, with others.
func (s *stage) launched(agents int, name, line string, others ...string) (all []*command) {
	s.t.Helper()
	for rank := range agents {
		own := []string{fmt.Sprintf("WORLD_SIZE=%d", agents), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", agents), "TORCHELASTIC_RUN_ID=" + s.dir,
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(os.Getpid()), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank)}
		all = append(all, s.start(name, fmt.Sprintf("%s --expect-agents %d", line, agents), append(own, others...)...))
	}
	return all
}

// freePort is a port of the loopback interface that nobody has.
func freePort(t testing.TB) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// buffer may be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wait waits for the end of a command and reports whether it came in time.
func (c *command) wait(until time.Time) bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(time.Until(until)):
		return false
	}
}

// said is all that a command has printed.
func (c *command) said() string { return c.stdout.String() + c.stderr.String() }

// process is one of a stage.
type process struct {
	pid, parent int
	agent       int  // -1 where it is none that a driver has started
	task        int  // of a Slurm step, or of mpirun; -1 else
	works       bool // for the command that was started
}

// processes lists those that carry the stage's mark and have not ended. One that is
// about to run another program still has the environment of its parent: it is listed as
// its parent is.
func (s *stage) processes() (out []process) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Error(err)
	}
	for _, dir := range all {
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // it may have ended, or be another user's
		variables := strings.Split(string(env), "\x00")
		if !slices.Contains(variables, s.mark) {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		p := process{agent: -1, task: -1}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.parent, _ = strconv.Atoi(fields[1])
		for _, v := range variables {
			for _, name := range []string{"SLURM_PROCID=", "OMPI_COMM_WORLD_RANK="} {
				if number, ok := strings.CutPrefix(v, name); ok {
					p.task, _ = strconv.Atoi(number)
				}
			}
			p.works = p.works || strings.HasPrefix(v, "LOCKSTEP_SUPERVISOR=")
			if seat, ok := strings.CutPrefix(v, "LOCKSTEP_AGENT="); ok {
				_, number, _ := strings.Cut(seat, `"agent":`)
				_, _ = fmt.Sscanf(number, "%d", &p.agent)
			}
		}
		out = append(out, p)
	}
	return out
}

// role says which process of a run: the command that was started, the one that works for
// it, which drives where it is the first, or an agent of the driver.
type role struct {
	of    int // which command
	what  string
	agent int
}

const (
	roleCommand = "command"
	roleWork    = "work"
	roleAgent   = "agent"
)

func (r role) String() string {
	if r.what == roleAgent {
		return fmt.Sprintf("agent %d", r.agent)
	}
	return fmt.Sprintf("%s %d", r.what, r.of)
}

// find gives the process of a role; 0 where it is not there.
func (s *stage) find(r role, commands []*command) int {
	c := commands[r.of].Process.Pid
	if r.what == roleCommand {
		return c
	}
	all := s.processes()
	work := slices.IndexFunc(all, func(p process) bool { return p.parent == c })
	if work < 0 {
		return 0
	}
	if r.what == roleWork {
		return all[work].pid
	}
	for _, p := range all {
		if p.parent == all[work].pid && p.agent == r.agent {
			return p.pid
		}
	}
	return 0
}

// signal signals the process of a role, as soon as it is there, and gives which it was;
// 0 where the command ended before.
func (s *stage) signal(r role, commands []*command, sig syscall.Signal) int {
	s.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
		select {
		case <-commands[r.of].ended:
			return 0
		default:
		}
		if pid := s.find(r, commands); pid != 0 {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				s.t.Fatal(err)
			}
			return pid
		}
	}
	s.t.Fatalf("%v did not come", r)
	return 0
}

// empty waits until no process of the stage is left, and reports whether that came in
// time.
func (s *stage) empty(until time.Time) bool {
	for {
		left := s.processes()
		if len(left) == 0 {
			return true
		}
		if time.Now().After(until) {
			s.t.Errorf("processes %v are left", left)
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}
