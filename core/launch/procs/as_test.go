//go:build unix

package procs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// What the test binary is, as a process of its own: its first argument.
const (
	ordinary = "ordinary" // an agent
	stranger = "stranger" // an agent of another program
	mute     = "mute"     // an agent that does not join
	early    = "early"    // an agent that ends at once
	late     = "late"     // an agent that takes its time to end
	faulty   = "faulty"   // an agent with the fault that follows
	driver   = "driver"   // a driver that starts agents and says which processes they are
)

// TestMain lets the test binary be an agent, or a driver.
func TestMain(m *testing.M) {
	seat, err := Taken()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case seat != nil && os.Args[1] == faulty:
		_ = EndWithParent(func() { os.Exit(9) })
		os.Exit(serveFaulty(seat))
	case seat != nil:
		_ = EndWithParent(func() {
			Bereft()
			os.Exit(9)
		})
		seat.Network.TLS = ownTLS()
		os.Exit(serve(seat, os.Args[1]))
	case os.Getenv("TEST_LAUNCHED") != "":
		n, _ := strconv.Atoi(os.Getenv("TEST_AGENT"))
		of, _ := strconv.Atoi(os.Getenv("TEST_AGENTS"))
		share := func(agents int) { fmt.Fprintf(os.Stderr, "one of %d here\n", agents) }
		failed := func(err error) { fmt.Fprintf(os.Stderr, "failed: %v\n", err) }
		f := &Found{Share: share, Failed: failed, Source: "a test", Agent: n, Agents: of, Local: -1, Job: os.Getenv("TEST_LAUNCHED"), Deadline: 5 * time.Second}
		if at := os.Getenv("TEST_PLACES"); at != "" {
			f.Places = strings.Fields(at)
			f.Network = Network{Token: []byte(os.Getenv("TEST_TOKEN")), Interface: os.Getenv("TEST_INTERFACE"), Host: os.Getenv("TEST_HOST")}
			if dir := os.Getenv("TEST_SHARED"); dir != "" {
				f.Shared = []string{dir}
			}
			f.Network.TLS = ownTLS()
			if local := os.Getenv("TEST_LOCAL"); local != "" {
				f.Local, _ = strconv.Atoi(local)
			}
		}
		os.Exit(serve(f, os.Args[1]))
	case len(os.Args) > 1 && os.Args[1] == driver:
		drive()
	}
	os.Exit(m.Run())
}

// ownTLS is what the environment says of it.
func ownTLS() *tls.Config {
	files := strings.Fields(os.Getenv("TEST_TLS"))
	if len(files) == 0 {
		return nil
	}
	c, err := TLS(files[0], files[1], files[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return c
}

func serve(seat Server, as string) int {
	identity, do := "a program", Work(work)
	if other := works[as]; other != nil {
		do = other
	}
	switch as {
	case mute:
		time.Sleep(time.Minute)
	case early:
		return 7
	case stranger:
		identity = "another program"
	}
	code, err := seat.Serve(context.Background(), identity, do)
	if as == late {
		time.Sleep(lastWords + lastWords/2) // and its connection is closed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return code
}

// order is what a test's agents are to do.
type order struct {
	Plan  string
	Steps int
	Fail  int // agent whose work fails, from 1; one more panics
}

// work trains, or fails.
func work(ctx context.Context, j *Job) (*launch.Outcome, error) {
	var o order
	if err := json.Unmarshal(j.What, &o); err != nil {
		return nil, err
	}
	switch me := j.a.Agent + 1; {
	case o.Fail == me:
		return nil, errors.New("no work today")
	case o.Fail == -me:
		panic("at work")
	}
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	parts := onRef()
	parts.Checkpoints.Stop = func(int) bool { return false }
	j.Join(&parts, Auto)
	j.Stream(&parts)
	return launch.Local(ctx, cfg, data.Default(), parts)
}

func onRef() launch.Parts {
	return launch.Parts{Backend: func(int) (kernels.Backend, error) { return ref.New[float32](), nil }, Deadline: 20 * time.Second}
}

func (o order) config() (spec.Config, error) {
	cfg, err := spec.Preset("nano")
	if err == nil {
		cfg.Plan, err = plan.Parse(o.Plan)
	}
	cfg.Steps, cfg.Recording.Digests = o.Steps, true
	cfg.Model.SeqLen, cfg.Sequences = 4, 8 // what a step computes is not in question here
	return cfg, err
}

func (o order) task(t testing.TB) Task {
	t.Helper()
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	what, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return Task{What: what, World: cfg.Plan.World()}
}

// options are those of a team whose silence is noticed soon.
func options(agents int, as string) Options {
	return Options{Agents: agents, Args: []string{as}, Identity: "a program", Deadline: 10 * time.Second}
}

// started starts a team of ordinary agents; at the end of the test none is left.
func started(t *testing.T, agents int) *Team {
	t.Helper()
	team, err := Start(t.Context(), options(agents, ordinary))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		team.Close(4)
		gone(t, team)
	})
	return team
}

// gone wants no process of a team to be left.
func gone(t *testing.T, team *Team) {
	t.Helper()
	for _, c := range team.children {
		select {
		case <-c.ended:
		default:
			t.Errorf("%v is still there", c)
		}
	}
}

// drive is a driver that waits to be killed.
func drive() {
	opts := options(2, ordinary)
	if name := os.Getenv("TEST_NAME"); name != "" { // with an agent that it does not start
		opts.Deadline = 3 * time.Second
		opts.Found = &Found{Source: "a test", Agents: 2, Local: -1, Job: name, Places: os.Args[2:], Network: Network{Token: []byte(testToken)}}
	}
	team, err := Start(context.Background(), opts)
	if err != nil {
		fmt.Println(err)
		os.Exit(4)
	}
	for _, c := range team.children {
		fmt.Println(c.pid)
	}
	for range 2 { // tasks with something in their directories
		dir, err := team.Dir()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "x"), nil, 0o600)
		}
		if err != nil {
			dir = err.Error()
		}
		fmt.Println(dir)
	}
	time.Sleep(time.Minute)
}

// isGone reports whether a process is gone, but for its entry.
func isGone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
