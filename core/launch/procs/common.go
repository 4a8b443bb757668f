//go:build unix

package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// leaves lists what this run may leave: a directory for tasks, what shows agents what
// they share, and where those of a launcher meet.
func (t *Team) leaves(o *Options) []string {
	all := []string{filepath.Join(os.TempDir(), "lockstep-"+t.run)}
	if o.Found != nil && !t.seat.Apart {
		all = append(all, o.Found.place())
	}
	for _, dir := range o.Shared {
		if t.seat.Apart && dir != "" {
			all = append(all, filepath.Join(dir, t.probe()))
		}
	}
	return all
}

// Dir makes a directory for a task, which is gone when the team is.
func (t *Team) Dir() (string, error) {
	if err := os.Mkdir(t.seat.Leaves[0], 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return os.MkdirTemp(t.seat.Leaves[0], "task-")
}

// probe is the name of a file that shows agents what they share.
func (t *Team) probe() string { return ".lockstep-" + t.run }

// onHost tells hosts apart.
func onHost(h *wire.Hello) string { return h.Host + " " + h.Boot }

// man tells all agents that all have come, and where there may be several hosts what
// shows them whether they share directories.
func (t *Team) man(shared []string) error {
	probe := ""
	for _, dir := range shared {
		if !t.seat.Apart || dir == "" {
			continue
		}
		probe = t.probe()
		if err := os.WriteFile(filepath.Join(dir, probe), nil, 0o600); err != nil {
			return err
		}
	}
	here := map[string]int{}
	for _, c := range t.children {
		here[onHost(&c.hello)]++
	}
	for i, c := range t.children {
		t.send(note{Kind: noteCrew, Crew: &crew{Run: t.run, Here: here[onHost(&c.hello)], Hosts: len(here), Probe: probe}}, []int{i})
	}
	return nil
}

// Here is how many agents are on the host of the first.
func (t *Team) Here() (n int) {
	for _, c := range t.children {
		if onHost(&c.hello) == onHost(&t.children[0].hello) {
			n++
		}
	}
	return n
}

// Hosts says which agents are on which host and where they listen, if they may be on
// several: "node1: agents 0, 1 at 10.0.0.1 (interface eth0)".
func (t *Team) Hosts() []string {
	if !t.seat.Apart {
		return nil
	}
	var names []string
	agents := map[string][]int{}
	for i, c := range t.children {
		name := fmt.Sprintf("%s at %s", c.hello.Host, c.hello.Address)
		if agents[name] == nil {
			names = append(names, name)
		}
		agents[name] = append(agents[name], i)
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s: %s", name, list("agent", agents[name]))
	}
	return names
}
