package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Schema names the format of history files; JSONSchema describes it.
const Schema = "lockstep/history/v2"

// Header is the first line of a rank's history: equal on all ranks of a run but
// for Rank and what Origin says.
type Header struct {
	Schema string `json:"schema"`
	// Arithmetic is the version of the canonical arithmetic; 0 where the run
	// followed none.
	Arithmetic int    `json:"arithmetic"`
	Rank       int    `json:"rank"`
	World      int    `json:"world"`
	Case       string `json:"case,omitempty"` // which case of which contract this run is
	Plan       string `json:"plan"`
	Model      string `json:"model"`
	Backend    string `json:"backend"`
	// Host and Process say where the rank ran, Device on what: the machine's name,
	// the number of the process among those of the run, from 1, and which device, with
	// its index, name, UUID and address. What is left out is this machine, the one
	// process, the processor.
	Host    string `json:"host,omitempty"`
	Process int    `json:"process,omitempty"`
	Device  string `json:"device,omitempty"`
	// Spec says what was run.
	Spec Spec `json:"spec,omitzero"`
}

// Origin is what the headers of one run's ranks may differ in.
type Origin struct {
	Backend, Host, Device string
	Process               int
}

// Origin is the header's.
func (h *Header) Origin() Origin { return Origin{h.Backend, h.Host, h.Device, h.Process} }

// SameProcess reports whether two ranks ran in one process, whose addresses, and
// none of other processes, say the same of both.
func (o Origin) SameProcess(as Origin) bool { return o.Host == as.Host && o.Process == as.Process }

// at is the header of another rank of the run.
func (h Header) at(rank int, o Origin) Header {
	h.Rank, h.Backend, h.Host, h.Device, h.Process = rank, o.Backend, o.Host, o.Device, o.Process
	return h
}

// Log is one rank's events in the order recorded. It is a Recorder.
type Log struct {
	Header Header
	// Keep, where not nil, says which events are kept; the others go no further than
	// the file of Stream. It may Take what was recorded before.
	Keep   func(Event) bool
	mu     sync.Mutex
	events []Event
	held   []held
	holds  bool    // events join those held
	stream *stream // nil without a file
	damage string  // of the file that it was read from
}

// Record appends e with the log's rank.
func (l *Log) Record(e Event) {
	if !l.joins(e) {
		l.pass(e)
	}
}

// pass appends an event.
func (l *Log) pass(e Event) {
	e.Rank = l.Header.Rank
	keep := l.Keep == nil || l.Keep(e) // which may Take
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil {
		l.stream.add(e)
	}
	if keep {
		l.events = append(l.events, e)
	}
}

// Events is a copy of what has been recorded.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Take is what has been recorded since the last time, which the log then forgets.
func (l *Log) Take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.events
	l.events = nil
	return out
}

// Add appends events that are the log's rank's.
func (l *Log) Add(events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
}

// History is a whole run: one event list per rank that left one.
type History struct {
	Header Header // of the lowest rank present
	Ranks  map[int][]Event
	// Origins has the ranks' own; one without any has the header's.
	Origins map[int]Origin
	// Dir is the directory that Load found it in; empty where it was not read.
	Dir string
	// Damage says what shows that files were damaged after they were written, of each
	// by name and line: nothing of the run is held by what is left.
	Damage []string
}

// Merge joins the logs of one run. It refuses two logs of one rank, ranks
// outside the world, and headers that disagree, naming the field.
func Merge(logs []*Log) (*History, error) {
	if len(logs) == 0 {
		return nil, fmt.Errorf("no history to merge")
	}
	logs = slices.Clone(logs)
	slices.SortFunc(logs, func(a, b *Log) int { return a.Header.Rank - b.Header.Rank })
	h := &History{Header: logs[0].Header, Ranks: map[int][]Event{}, Origins: map[int]Origin{}}
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
		h.Ranks[r], h.Origins[r] = l.Events(), l.Header.Origin()
		if l.damage != "" {
			h.Damage = append(h.Damage, l.damage)
		}
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
		{"spec", a.Spec.String(), b.Spec.String()},
	} {
		if f.a != f.b {
			return fmt.Errorf("histories of ranks %d and %d are not of one run: %s %q and %q", a.Rank, b.Rank, f.name, f.a, f.b)
		}
	}
	return nil
}

// Origin is where a rank ran.
func (h *History) Origin(rank int) Origin {
	if o, ok := h.Origins[rank]; ok {
		return o
	}
	return h.Header.Origin()
}

// Of is the header of a rank.
func (h *History) Of(rank int) Header { return h.Header.at(rank, h.Origin(rank)) }

// Backends are the names of what ranks computed on, each once, in the order of ranks.
func (h *History) Backends() []string {
	out := []string{h.Header.Backend} // the lowest rank's
	for _, r := range slices.Sorted(maps.Keys(h.Ranks)) {
		if b := h.Origin(r).Backend; !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
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

// CutOff says what shows that the history of a rank is not the whole of what the
// rank did, "" where nothing does: it has no end, a second one, or goes on after
// it. Ranks that are Missing have none. Only what is added from outside stands
// behind the end: what turns, files and later readers of them show.
func (h *History) CutOff() string {
	why, more := "", 0
	for _, rank := range slices.Sorted(maps.Keys(h.Ranks)) {
		switch s := cutOff(h.Ranks[rank]); {
		case s == "":
		case why == "":
			why = fmt.Sprintf("rank %d %s", rank, s)
		default:
			more++
		}
	}
	if more > 0 {
		why += fmt.Sprintf("; so it is with %d more ranks", more)
	}
	return why
}

func cutOff(events []Event) string {
	ended := false
	for i := range events {
		switch k := events[i].Kind; {
		case k == KindEnd && ended:
			return "recorded its end twice"
		case k == KindEnd:
			ended = true
		case ended && !slices.Contains(outside(), k):
			return fmt.Sprintf("recorded a %s event after its end", k)
		}
	}
	if !ended {
		return "did not record its end: its history is cut off"
	}
	return ""
}

// outside are the kinds that others add to a history when the run has ended.
func outside() []Kind { return []Kind{KindTurns, KindHazard, KindStored, KindFile, KindRefusal} }

// Spans writes numbers, which ascend, as text: "1, 3 to 5, 9". It stays short
// whatever the number of them.
func Spans(numbers []int) string {
	const most = 8
	var out []string
	for i := 0; i < len(numbers); {
		j := i + 1
		for j < len(numbers) && numbers[j] == numbers[j-1]+1 {
			j++
		}
		if len(out) == most {
			return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(numbers)-i)
		}
		switch first, last := numbers[i], numbers[j-1]; {
		case j-i <= 2:
			j = i + 1
			out = append(out, fmt.Sprint(first))
		default:
			out = append(out, fmt.Sprintf("%d to %d", first, last))
		}
		i = j
	}
	return strings.Join(out, ", ")
}

// All yields every event, ranks ascending, each in its order.
func (h *History) All(yield func(Event) bool) {
	for _, r := range slices.Sorted(maps.Keys(h.Ranks)) {
		for _, e := range h.Ranks[r] {
			if !yield(e) {
				return
			}
		}
	}
}
