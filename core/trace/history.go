package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Schema names the format of history files.
const Schema = "lockstep/history/v1"

// Header is the first line of a rank's history: equal on all ranks of a run but
// for Rank.
type Header struct {
	Schema     string `json:"schema"`
	Arithmetic int    `json:"arithmetic"`
	Rank       int    `json:"rank"`
	World      int    `json:"world"`
	Case       string `json:"case,omitempty"` // which case of which contract this run is
	Plan       string `json:"plan"`
	Model      string `json:"model"`
	Backend    string `json:"backend"`
	// Spec replays the run: a spec.Config for training, a drill's parameters
	// for communicators.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// Log is one rank's events in the order recorded. It is a Recorder.
type Log struct {
	Header Header
	// Keep, where not nil, says which events are kept; the others are dropped.
	Keep   func(Event) bool
	mu     sync.Mutex
	events []Event
}

// Record appends e with the log's rank.
func (l *Log) Record(e Event) {
	e.Rank = l.Header.Rank
	if l.Keep != nil && !l.Keep(e) {
		return
	}
	l.mu.Lock()
	l.events = append(l.events, e)
	l.mu.Unlock()
}

// Events is a copy of what has been recorded.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// History is a whole run: one event list per rank that left one.
type History struct {
	Header Header // of the lowest rank present
	Ranks  map[int][]Event
}

// Merge joins the logs of one run. It refuses two logs of one rank, ranks
// outside the world, and headers that disagree, naming the field.
func Merge(logs []*Log) (*History, error) {
	if len(logs) == 0 {
		return nil, fmt.Errorf("no history to merge")
	}
	logs = slices.Clone(logs)
	slices.SortFunc(logs, func(a, b *Log) int { return a.Header.Rank - b.Header.Rank })
	h := &History{Header: logs[0].Header, Ranks: map[int][]Event{}}
	for _, l := range logs {
		if err := sameRun(h.Header, l.Header); err != nil {
			return nil, err
		}
		r := l.Header.Rank
		if r < 0 || r >= h.Header.World {
			return nil, fmt.Errorf("history of rank %d: the world has %d ranks", r, h.Header.World)
		}
		if _, twice := h.Ranks[r]; twice {
			return nil, fmt.Errorf("two histories of rank %d", r)
		}
		h.Ranks[r] = l.Events()
	}
	return h, nil
}

func sameRun(a, b Header) error {
	for _, f := range []struct{ name, a, b string }{
		{"schema", a.Schema, b.Schema},
		{"arithmetic", fmt.Sprint(a.Arithmetic), fmt.Sprint(b.Arithmetic)},
		{"world", fmt.Sprint(a.World), fmt.Sprint(b.World)},
		{"case", a.Case, b.Case},
		{"plan", a.Plan, b.Plan},
		{"model", a.Model, b.Model},
		{"spec", string(a.Spec), string(b.Spec)},
	} {
		if f.a != f.b {
			return fmt.Errorf("histories of ranks %d and %d are not of one run: %s %q and %q", a.Rank, b.Rank, f.name, f.a, f.b)
		}
	}
	return nil
}

// Missing lists the ranks of the world that left no history.
func (h *History) Missing() []int {
	var out []int
	for r := range h.Header.World {
		if _, ok := h.Ranks[r]; !ok {
			out = append(out, r)
		}
	}
	return out
}

// All yields every event, ranks ascending, each in its order.
func (h *History) All(yield func(Event) bool) {
	for r := range h.Header.World {
		for _, e := range h.Ranks[r] {
			if !yield(e) {
				return
			}
		}
	}
}
