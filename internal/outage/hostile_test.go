//go:build linux

package outage

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/internal/authority"
)

var visits = flag.Int("visits", 500, "connections of strangers to the runs of TestStrangers")

// besieged is a kind of run that strangers come to.
type besieged struct {
	name  string
	share int    // of the visits, in tenths
	flags string // of all its processes
	meet  bool   // at a rendezvous, to which the last of them comes late
	tls   bool
}

// crowd is more strangers than there is room for.
const crowd = 300

const token = "sixteen bytes and more"

// Strangers come to every port of a run, while its agents meet and while it trains: by
// the thousand, malformed, without the token or with the token and a false hello. None is
// let in; agents that come late are; the run ends well and with the bits of one that
// nobody disturbed; and no process has more memory or descriptors than before.
func TestStrangers(t *testing.T) {
	for _, b := range []besieged{
		{"agents that the driver starts", 3, "--launch procs --agents 3", false, false},
		{"agents that meet", 5, "--expect-agents 3", true, false},
		{"agents that meet with certificates", 2, "--expect-agents 3", true, true},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			n := *visits * b.share / 10
			for steps := 100 + n/20; ; steps *= 2 {
				if b.hold(t, n, steps) {
					return
				}
				if t.Failed() || steps > 20*(100+n) {
					t.Fatal("runs end before all strangers have come")
				}
			}
		})
	}
}

// hold makes a run of so many steps, to which so many strangers come, and reports
// whether it was there for all of them.
func (b *besieged) hold(t *testing.T, n, steps int) bool {
	g := &siege{stage: newStage(t), counts: map[string]map[string]int{}}
	line := fmt.Sprintf("--plan dp=2,tp=2,pp=2,zero=1 --steps %d --horizon 0 --fingerprint --deadline 60s %s", steps, b.flags)
	meeting, leave := context.WithCancel(t.Context())
	defer leave()
	var there sync.WaitGroup
	var commands []*command
	if b.meet {
		commands = b.meetUnderSiege(meeting, g, n/4, line, &there)
	} else {
		commands = []*command{g.start("train", line)}
		first := g.firstPort(commands[0])
		g.lay(meeting, crowd, those(stays), first, &there)
		g.lay(meeting, n/4, append(those(waits), those(goes)...), first, &there)
	}
	g.trains(commands, 3)
	leave()
	there.Wait()

	kinds := strangers()
	if g.token != "" {
		g.learnAll()
		kinds = append(kinds, traitors(&g.knows)...)
		g.lay(t.Context(), len(g.hellos), []stranger{member(&g.knows)}, g.ports(), &there)
	}
	ports := g.ports()
	var before map[process]level
	for _, part := range []int{4, 1} {
		training, leave := context.WithCancel(t.Context())
		done, _ := g.count()
		g.lay(training, max((n-done)/part, len(kinds)), kinds, ports, &there)
		leave()
		there.Wait()
		if before == nil {
			time.Sleep(500 * time.Millisecond) // what they had is given back
			before = g.levels()
		}
	}
	t.Logf("they had come by %.20q", lastLine(commands[0].stdout.String()))
	g.level(before)
	if _, over := g.count(); over {
		t.Logf("the run of %d steps was over too soon", steps)
	}
	g.endsWell(commands, steps)
	g.heed(kinds)
	t.Log(g.report())
	_, over := g.count()
	return !over
}

// firstPort waits until a run listens somewhere.
func (g *siege) firstPort(c *command) []port {
	for {
		if all := g.ports(); len(all) > 0 {
			return all
		}
		if c.wait(time.Now().Add(time.Millisecond)) || time.Since(c.begun) > time.Minute {
			g.t.Fatalf("it does not listen: %s", c.said())
		}
	}
}

// meetUnderSiege starts the agents of a run, the last of them when there are so many
// strangers at the rendezvous that there is no room for more.
func (b *besieged) meetUnderSiege(ctx context.Context, g *siege, n int, line string, there *sync.WaitGroup) (all []*command) {
	at := fmt.Sprintf("127.0.0.1:%d", freePort(g.t))
	g.token = token
	if b.tls {
		line += b.certify(g)
	}
	agent := func(i int, at string) {
		all = append(all, g.start("train", fmt.Sprintf("%s --agent %d --rendezvous %s", line, i, at), "LOCKSTEP_TOKEN="+token))
	}
	agent(0, at)
	agent(1, at)
	driver := g.firstPort(all[0])[:1]
	if !b.tls { // then they are thrown out as late as a handshake may be
		g.lay(ctx, crowd, those(stays), driver, there)
		there.Wait()
	}
	g.lay(ctx, n, append(those(waits), those(goes)...), driver, there)
	g.lay(ctx, crowd, those(stays), driver, there)
	if b.tls {
		agent(2, at)
		return all
	}
	between, first := g.overhear(at)
	agent(2, between)
	select {
	case g.overheard = <-first:
	case <-time.After(time.Minute):
		g.t.Fatalf("agent 2 says nothing: %s", all[2].said())
	}
	return all
}

// certify gives a run certificates, and strangers what they may have; it gives the flags.
func (b *besieged) certify(g *siege) string {
	load := func(by *authority.Authority) (*tls.Config, string) {
		cert, key := by.Issue(time.Now().Add(time.Hour))
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			g.t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, fmt.Sprintf(" --tls-cert %s --tls-key %s --tls-ca %s", cert, key, by.File)
	}
	one := authority.New(g.t)
	_, flags := load(one)
	g.own, _ = load(one)
	g.other, _ = load(authority.New(g.t))
	g.bare = &tls.Config{InsecureSkipVerify: true}
	return flags
}

// learnAll has traitors learn what is right at every port.
func (g *siege) learnAll() {
	g.hellos = nil
	all := g.ports()
	found := make(map[port]*wire.Hello, len(all))
	for _, at := range all {
		h, err := g.learn(at)
		if err != nil {
			g.t.Fatalf("%s %s: %v", at.network, at.addr, err)
		}
		found[at] = h
	}
	g.hellos = found
}

// trains waits until a run has done some steps.
func (g *siege) trains(commands []*command, step int) {
	for !strings.Contains(commands[0].stdout.String(), fmt.Sprintf("step %d/", step)) {
		if time.Since(commands[0].begun) > 2*time.Minute || commands[0].wait(time.Now().Add(time.Millisecond)) {
			for i, c := range commands {
				g.t.Errorf("command %d: %s", i, c.said())
			}
			g.t.Fatal("no step is done")
		}
	}
}

// endsWell wants all commands of a run to end with 0, to have said nothing else, and the
// fingerprint to be that of an undisturbed run.
func (g *siege) endsWell(commands []*command, steps int) {
	until := time.Now().Add(5 * time.Minute)
	for i, c := range commands {
		if !c.wait(until) {
			g.t.Fatalf("command %d does not end: %s", i, c.said())
		}
		if code := c.ProcessState.ExitCode(); code != 0 || c.stderr.String() != "" {
			g.t.Errorf("command %d ended with %d: %s", i, code, c.stderr.String())
		}
	}
	g.empty(time.Now().Add(5 * time.Second))
	until = time.Now().Add(5 * time.Minute)
	plain := g.start("train", fmt.Sprintf("--steps %d --horizon 0 --fingerprint --quiet", steps))
	if !plain.wait(until) || plain.stdout.String() == "" || !strings.HasSuffix(commands[0].stdout.String(), "\n"+plain.stdout.String()) {
		g.t.Errorf("it has not the bits of one that nobody disturbed: %s", plain.said())
	}
}

// growth is how much more memory a process may have after strangers than after a part of
// them.
const growth = 8 << 20

// level wants no process to have more than before: descriptors are closed a moment later.
func (g *siege) level(before map[process]level) {
	g.t.Helper()
	var now map[process]level
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		now = g.levels()
		more := 0
		for p, was := range before {
			more = max(more, now[p].descriptors-was.descriptors)
		}
		if more <= 0 || time.Since(begun) > 5*time.Second {
			break
		}
	}
	for p, was := range before {
		is, there := now[p]
		if there && (is.descriptors > was.descriptors || is.memory > was.memory+growth) {
			g.t.Errorf("process %d, agent %d: %d descriptors and %d KiB, %d and %d before", p.pid, p.agent, is.descriptors, is.memory>>10, was.descriptors, was.memory>>10)
		}
		g.t.Logf("process %d, agent %d: %d descriptors and %d KiB, %d and %d before", p.pid, p.agent, is.descriptors, is.memory>>10, was.descriptors, was.memory>>10)
	}
}

// Strangers leave no goroutine behind in any process of a run: when they have gone, each
// has as many as one of a run to which nobody came.
func TestStrangersLeaveNoGoroutine(t *testing.T) {
	for _, of := range []string{roleWork, roleAgent} {
		plain := goroutinesAfter(t, 0, of)
		got := goroutinesAfter(t, 300, of)
		t.Logf("goroutines of each %s: %v without strangers, %v after them", of, plain, got)
		for i := range got {
			if len(got) != len(plain) || got[i] > plain[i]+10 || plain[i] == 0 {
				t.Fatal("they have left some")
			}
		}
	}
}

// goroutinesAfter counts those of the processes of a role, when so many strangers have
// come to a run and gone, and ends it: a process that is told to quit says what its
// goroutines do, while all others are stopped.
func goroutinesAfter(t *testing.T, n int, of string) (out []int) {
	g := &siege{stage: newStage(t), counts: map[string]map[string]int{}}
	c := g.start("train", "--plan dp=2,tp=2,pp=2,zero=1 --steps 100000 --launch procs --agents 3")
	g.trains([]*command{c}, 3)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var there sync.WaitGroup
	g.lay(ctx, n, strangers(), g.ports(), &there)
	leave()
	there.Wait()
	time.Sleep(500 * time.Millisecond) // what they had is given back
	all := slices.DeleteFunc(g.processes(), func(p process) bool { return !p.works && p.agent < 0 })
	slices.SortFunc(all, func(a, b process) int { return a.agent - b.agent })
	for _, p := range all {
		_ = syscall.Kill(p.pid, syscall.SIGSTOP) // it is there
	}
	for _, p := range all {
		if p.works != (of == roleWork) {
			continue
		}
		before := len(c.stderr.String())
		_ = syscall.Kill(p.pid, syscall.SIGQUIT)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		for said := -1; said < len(c.stderr.String()) || slices.ContainsFunc(g.processes(), func(x process) bool { return x.pid == p.pid }); {
			said = len(c.stderr.String())
			time.Sleep(200 * time.Millisecond)
		}
		out = append(out, strings.Count(c.stderr.String()[before:], "\ngoroutine "))
	}
	for _, p := range all {
		_ = syscall.Kill(p.pid, syscall.SIGCONT) // those that are left end by themselves
	}
	g.empty(time.Now().Add(10 * time.Second))
	return out
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
