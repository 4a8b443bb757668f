//go:build linux

package outage

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/trace"
)

var (
	moments = flag.Int("moments", 8, "random moments at which TestKilledAtRandom kills a process")
	seed    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the moments")
)

// deadline is that of all runs here: other tests share the processors.
const deadline = 10 * time.Second

// show is one kind of run: how it is started, and who is in it.
type show struct {
	name, command, line string
	launched            bool // by a launcher, not by the command itself
	span                time.Duration
}

const agents = 3

// shows are runs that end by themselves late, or soon.
func shows() []show {
	train := "--plan dp=2,tp=2,pp=2,zero=1 --fingerprint --save DIR/save --save-every 2 --history DIR/history --deadline 10s "
	verify := "--contract C-DDP-001,C-CKPT-001 --out DIR/out --format text,json,junit --deadline 10s "
	procs := fmt.Sprintf(" --launch procs --agents %d", agents)
	return []show{
		{"train", "train", train + "--steps 100000" + procs, false, 1200 * time.Millisecond},
		{"train under a launcher", "train", train + "--steps 100000", true, 1200 * time.Millisecond},
		{"verify", "verify", verify + procs, false, 6 * time.Second},
		{"verify under a launcher", "verify", verify, true, 6 * time.Second},
		{"train to its end", "train", train + "--steps 12" + procs, false, time.Second},
	}
}

// cast are the processes of a run.
func (h show) cast() (out []role) {
	if !h.launched {
		out = append(out, role{what: roleCommand}, role{what: roleWork})
		for i := range agents {
			out = append(out, role{what: roleAgent, agent: i})
		}
		return out
	}
	out = append(out, role{what: roleAgent})
	for i := range agents {
		out = append(out, role{of: i, what: roleWork}, role{of: i, what: roleCommand})
	}
	return out
}

// start starts its processes.
func (h show) start(s *stage) []*command {
	if h.launched {
		return s.launched(agents, h.command, h.line)
	}
	return []*command{s.start(h.command, h.line)}
}

// Whichever process of a run is killed whenever, all others end with 4 within twice the
// deadline; who is left names it; no process and no file in part stay behind; and the
// next run goes on where it was.
func TestKilledAtRandom(t *testing.T) {
	t.Logf("seed %d", *seed)
	r := rand.New(rand.NewPCG(*seed, 7))
	done, late := 0, 0
	turns := map[string]int{}
	for i := 0; done < *moments; i++ {
		h := shows()[i%len(shows())]
		cast := h.cast()
		if _, begun := turns[h.name]; !begun {
			turns[h.name] = r.IntN(len(cast))
		}
		victim := cast[turns[h.name]%len(cast)]
		turns[h.name]++
		span := h.span
		if r.IntN(4) == 0 {
			span = 60 * time.Millisecond // processes start others, and these look for each other
		}
		after := time.Duration(r.Int64N(int64(span)))
		name := fmt.Sprintf("%s, %v after %v", h.name, victim, after.Round(time.Millisecond))
		t.Run(name, func(t *testing.T) {
			if killed(t, h, victim, after) {
				done++
			} else {
				late++
			}
		})
		if late > 2**moments+10 {
			t.Fatalf("%d of %d kills came when the run was over", late, late+done)
		}
	}
	t.Logf("%d kills, %d more came when the run was over", done, late)
}

// killed kills one process of a run, and reports whether it was needed then.
func killed(t *testing.T, h show, victim role, after time.Duration) bool {
	s := newStage(t)
	commands := h.start(s)
	time.Sleep(time.Until(commands[0].begun.Add(after)))
	pid := s.signal(victim, commands, syscall.SIGKILL)
	until := time.Now().Add(2 * deadline)
	for i, c := range commands {
		if !c.wait(until) {
			t.Fatalf("command %d has not ended within %v", i, 2*deadline)
		}
	}
	s.empty(until)
	if pid == 0 || over(commands, victim) {
		return false
	}
	h.judge(t, commands, victim, pid)
	s.whole(t)
	if h.command == "train" {
		s.goesOn(t)
	}
	return true
}

// over reports whether a run ended as if nobody had been killed: it was done. A process
// that was killed itself does not count.
func over(commands []*command, victim role) bool {
	ok := true
	for i, c := range commands {
		if i != victim.of || victim.what == roleAgent || len(commands) == 1 && victim.what == roleWork {
			ok = ok && c.ProcessState.ExitCode() == 0
		}
	}
	return ok && !(len(commands) == 1 && victim.what == roleCommand)
}

// judge holds exit codes and what is said against what must be.
func (h show) judge(t *testing.T, commands []*command, victim role, pid int) {
	t.Helper()
	said := ""
	for i, c := range commands {
		said += c.said()
		if i == victim.of && victim.what == roleCommand {
			continue // was killed itself
		}
		if code := c.ProcessState.ExitCode(); code != 4 {
			t.Errorf("command %d ended with %d: %s", i, code, c.said())
		}
	}
	var names []string
	switch driver := victim.of == 0 && victim.what != roleAgent; {
	case driver && !h.launched && victim.what == roleCommand:
		return // nobody is left to say anything
	case driver && !h.launched:
		names = []string{h.command + ": could not run: killed"}
	case driver:
		names = []string{" its driver"}
	case victim.what == roleAgent:
		names = []string{fmt.Sprintf("agent %d (process %d", victim.agent, pid), "was ended by signal 9 (killed)"}
	default: // an agent's own process is the one that works for the command
		names = []string{fmt.Sprintf("agent %d", victim.of)}
	}
	for _, n := range names {
		if !strings.Contains(said, n) {
			t.Errorf("%q is not said:\n%s", n, said)
		}
	}
}

// whole wants every file that is left to be complete, or to be marked as pending.
func (s *stage) whole(t *testing.T) {
	t.Helper()
	for _, dir := range []string{s.path("history"), s.path("out/histories")} {
		all, err := trace.Load(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "no history") && !strings.Contains(err.Error(), "is empty") {
			t.Error(err)
		}
		for _, h := range all {
			for _, why := range h.Damage {
				t.Errorf("%s: %s", h.Dir, why)
			}
		}
	}
	all, err := checkpoint.List(s.path("save"))
	if err != nil {
		t.Error(err)
	}
	for _, l := range all {
		if l.Err != nil && l.Err.Error() != "was not finished" {
			t.Errorf("%s: %v", l.Dir, l.Err)
		}
		if l.Err != nil {
			continue
		}
		if c, err := checkpoint.Open(l.Dir); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	}
	s.reports(t)
	for _, name := range []string{"save", "history", "out"} {
		dir := s.path(name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		l, err := files.Hold(dir)
		if err != nil {
			t.Errorf("nobody writes to it any more: %v", err)
			continue
		}
		_ = l.Release()
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // agents clear up after a driver, as they end
		left, err := os.ReadDir(s.tmp())
		if err != nil {
			t.Error(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Since(begun) > 2*time.Second {
			t.Errorf("temporary files %v are left", left)
			return
		}
	}
}

// reports wants the reports of a verification to be complete, where there are any.
func (s *stage) reports(t *testing.T) {
	t.Helper()
	for name, parse := range map[string]func([]byte) error{
		"report.json": func(b []byte) error { var x any; return json.Unmarshal(b, &x) },
		"report.txt": func(b []byte) error {
			if !strings.Contains(string(b), "\ninconclusive: ") && !strings.Contains(string(b), "\nheld: ") {
				return fmt.Errorf("has no last line")
			}
			return nil
		},
		"report.xml": func(b []byte) error {
			d := xml.NewDecoder(strings.NewReader(string(b)))
			for {
				if _, err := d.Token(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		},
	} {
		b, err := os.ReadFile(filepath.Join(s.path("out"), name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = parse(b)
		}
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, b)
		}
	}
}

// goesOn wants the next run in the same directories to go on from the newest
// checkpoint, where there is one, to the bits of a run that nobody disturbed.
func (s *stage) goesOn(t *testing.T) {
	t.Helper()
	last, resume := 0, ""
	all, err := checkpoint.List(s.path("save"))
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(all, func(l checkpoint.Listed) bool { return l.Err == nil }); i >= 0 {
		last, resume = all[i].Step, " --resume DIR/save"
	}
	steps := fmt.Sprintf(" --quiet --fingerprint --steps %d", last+2)
	next := s.start("train", "--plan dp=2,tp=2,pp=2,zero=1 --launch procs --agents 2 --deadline 30s --save DIR/save --history DIR/next"+resume+steps)
	plain := s.start("train", steps)
	for _, c := range []*command{next, plain} {
		if !c.wait(time.Now().Add(time.Minute)) {
			t.Fatalf("%s does not end", c.Args)
		}
	}
	if a, b := next.stdout.String(), plain.stdout.String(); a != b || a == "" || next.ProcessState.ExitCode() != 0 {
		t.Errorf("the next run, from step %d, ended with %d: %s%s; undisturbed %s", last, next.ProcessState.ExitCode(), a, next.stderr.String(), b)
	}
}
