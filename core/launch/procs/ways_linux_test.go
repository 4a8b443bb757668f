package procs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/core/launch"
)

// linked, as what the test binary is, trains, and fails where its ranks have reached
// others by other ways than they should.
const linked = "linked"

// chosen is what its agents are to do.
type chosen struct {
	order
	Ways []string // of each agent's links, in words
}

func (c chosen) work(ctx context.Context, j *Job) (*launch.Outcome, error) {
	if err := json.Unmarshal(j.What, &c); err != nil {
		return nil, err
	}
	out, err := work(ctx, j)
	j.mu.Lock()
	defer j.mu.Unlock()
	if got, want := strings.Join(slices.Sorted(maps.Keys(j.links)), " and "), c.Ways[j.a.Agent]; err == nil && got != want {
		err = fmt.Errorf("agent %d has links by %q, want %q", j.a.Agent, got, want)
	}
	return out, err
}

// Ranks of one host reach each other by shared memory and those of different hosts by
// TCP, in one world, and the driver knows by which ways there are links.
func TestWaysBetweenHosts(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const one, other, both = shm.Name, tcp.Name, tcp.Name + " and " + shm.Name
	for _, x := range []struct {
		hosts string // of the agents
		ranks int
		ways  []string // of each agent
		all   string
	}{
		{"here here", 2, []string{one, one}, one},
		{"here there", 2, []string{other, other}, other},
		{"here there", 4, []string{both, both}, both}, // two ranks each
		{"here there here", 3, []string{both, other, both}, both},
		{"here there there", 3, []string{other, both, both}, both},
		{"here there elsewhere", 3, []string{other, other, other}, other},
		{"here there there here", 4, []string{both, both, both, both}, both},
	} {
		t.Run(fmt.Sprintf("%s, %d ranks", x.hosts, x.ranks), func(t *testing.T) {
			hosts := strings.Fields(strings.ReplaceAll(" "+x.hosts, " here", " "+here))
			opts := apart(t, len(hosts), free(t, "127.0.0.1"))
			opts.Args = []string{linked}
			for i := 1; i < len(hosts); i++ {
				elsewhere(t, opts, i, linked, "TEST_HOST="+hosts[i])
			}
			team, err := Start(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer team.Close(0)
			c := chosen{order{Plan: fmt.Sprintf("dp=%d", x.ranks), Steps: 1}, x.ways}
			task := c.task(t)
			if task.What, err = json.Marshal(c); err != nil {
				t.Fatal(err)
			}
			if _, err := team.Run(t.Context(), task); err != nil {
				t.Error(err)
			}
			if got := strings.Join(team.Links(), " and "); got != x.all {
				t.Errorf("links by %q, want %q", got, x.all)
			}
		})
	}
}
