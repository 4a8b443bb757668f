package kern

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// DeviceSpec is what the history of a drill of devices has in its header.
type DeviceSpec struct {
	Seed     uint64 `json:"seed"`
	Elements int    `json:"elements"` // of the vectors that devices exchange
	Depth    int    `json:"depth"`    // of the products that all parts of a device compute
	Repeats  int    `json:"repeats"`  // of these
	// Percent is how much of the memory that nobody uses is written; 0, and where nobody
	// knows, is Bytes.
	Percent int   `json:"memory_percent,omitempty"`
	Bytes   int64 `json:"memory_bytes"`
}

// maxPlaces bounds the ranks of a drill of devices.
const maxPlaces = 4096

// Check refuses what no drill has.
func (s DeviceSpec) Check() error {
	if s.Elements < 1 || s.Depth < 1 || s.Repeats < 1 || s.Bytes < 1 || s.Percent < 0 || s.Percent > 100 {
		return fmt.Errorf("drill of devices %+v: sizes must be at least 1, and a share at most 100 percent", s)
	}
	return nil
}

// survey is a drill of devices, by rank.
type survey struct {
	world int
	ranks []int // that left a history
	own   map[int]map[string]trace.Event
	with  map[int]map[peer]trace.Event
	at    func(rank int) string // which device a rank has, in words
	on    func(rank int) bool   // whether it has one
}

// peer is something that was done with another rank.
type peer struct {
	what string
	rank int
}

// surveyed reads the history of a drill of devices; where that is impossible the pass
// doubts and there is none.
func surveyed(p *contract.Pass) *survey {
	h, ok := p.History(contract.Test)
	if !ok {
		return nil
	}
	var spec DeviceSpec
	err := fmt.Errorf("spec: %s: not of a drill", h.Header.Spec.Name())
	if h.Header.Spec.Drill != nil {
		err = trace.Strict(h.Header.Spec.Drill, &spec)
	}
	if err == nil {
		err = spec.Check()
	}
	if err == nil && h.Header.World > maxPlaces {
		err = fmt.Errorf("a drill of devices in a world of %d ranks", h.Header.World)
	}
	if err != nil {
		p.Doubt("%v", err)
		return nil
	}
	s := &survey{world: h.Header.World, ranks: slices.Sorted(maps.Keys(h.Ranks)), own: map[int]map[string]trace.Event{}, with: map[int]map[peer]trace.Event{},
		at: func(rank int) string { return place(h, rank) }, on: func(rank int) bool { return h.Origin(rank).Device != "" }}
	for _, r := range s.ranks {
		s.own[r], s.with[r] = map[string]trace.Event{}, map[peer]trace.Event{}
		for _, e := range h.Ranks[r] {
			switch {
			case e.Kind != trace.KindDevice:
			case e.What == trace.Copied || e.What == trace.Summed:
				if k := (peer{e.What, e.Peer}); s.with[r][k].Text == "" { // of several the one that is wrong
					s.with[r][k] = e
				}
			case s.own[r][e.What].Text == "":
				s.own[r][e.What] = e
			}
		}
	}
	return s
}

// place is a rank with its device, where it has one.
func place(h *trace.History, rank int) string {
	o := h.Origin(rank)
	switch {
	case o.Device == "":
		return fmt.Sprintf("rank %d", rank)
	case o.Host == "":
		return fmt.Sprintf("rank %d on %s", rank, o.Device)
	}
	return fmt.Sprintf("rank %d on %s of host %s", rank, o.Device, o.Host)
}

// whole is clause 10: every part of every device computes, and its memory keeps.
func whole(p *contract.Pass) {
	s := surveyed(p)
	if s == nil {
		return
	}
	for _, r := range s.ranks {
		for _, what := range []string{trace.Parts, trace.Each, trace.Kept} {
			e, ok := s.own[r][what]
			if what == trace.Each && !s.on(r) {
				continue // nobody says which part computes
			}
			if p.Found(ok && (e.Count > 0 || e.Text != "")) && e.Text != "" {
				wrong(p, r, e, "%s", e.Text)
			}
		}
		if e, ok := s.own[r][trace.Each]; ok && e.Text == "" && !p.Found(e.Unit == strconv.FormatInt(e.Count, 10)) {
			p.Doubt("%s: %d of its multiprocessors have computed, of %s", s.at(r), e.Count, e.Unit)
		}
		if e, ok := s.own[r][trace.Kept]; ok && e.Text == "" && !p.Found(4*e.Count >= e.Bytes) {
			p.Doubt("%s: %d bytes of memory were written and read in the time there is, of %d", s.at(r), 4*e.Count, e.Bytes)
		}
	}
}

// wrong reports an element of a drill of devices.
func wrong(p *contract.Pass, rank int, e trace.Event, format string, args ...any) {
	f := p.At(rank, 0).Finding(bits(e.Got), bits(e.Want), format, args...)
	f.Index = e.Index
	p.Report(f)
}

// moved is clause 9: devices copy and sum the same bits, each with each and all together.
func moved(p *contract.Pass) {
	s := surveyed(p)
	if s == nil {
		return
	}
	blame := s.blame()
	for _, r := range s.ranks {
		for other := range s.world {
			if other == r {
				continue
			}
			for _, what := range []string{trace.Copied, trace.Summed} {
				e, ok := s.with[r][peer{what, other}]
				if p.Found(ok && e.Count > 0) && e.Text != "" {
					who, why := blame(r, other)
					wrong(p, who, e, "%s: %s; %s", s.says(r, other, what), e.Text, why)
				}
			}
		}
		e, ok := s.own[r][trace.All]
		if p.Found(ok && e.Count > 0) && e.Text != "" {
			wrong(p, r, e, "the sum over all %d ranks: %s", s.world, e.Text)
		}
	}
}

// says what two ranks did.
func (s *survey) says(r, other int, what string) string {
	if what == trace.Copied {
		return fmt.Sprintf("what %s got from %s is not what that sent", s.at(r), s.at(other))
	}
	return fmt.Sprintf("the sum of %s and %s, as the first has it, is wrong", s.at(r), s.at(other))
}

// blame says, of two ranks that did something wrong together, which it is that is at fault:
// the one that is wrong by itself too, or with others too; else the one that has what is
// wrong, as nothing tells.
func (s *survey) blame() func(r, other int) (who int, why string) {
	alone, partners := map[int]bool{}, map[int]map[int]bool{}
	for _, r := range s.ranks {
		alone[r] = s.own[r][trace.Parts].Text != "" || s.own[r][trace.Each].Text != "" || s.own[r][trace.Kept].Text != ""
		for with, e := range s.with[r] {
			if e.Text == "" {
				continue
			}
			for _, x := range [][2]int{{r, with.rank}, {with.rank, r}} {
				if partners[x[0]] == nil {
					partners[x[0]] = map[int]bool{}
				}
				partners[x[0]][x[1]] = true
			}
		}
	}
	return func(r, other int) (int, string) {
		for _, x := range [][2]int{{r, other}, {other, r}} {
			a, b := x[0], x[1]
			switch n := len(partners[a]); {
			case alone[a] && !alone[b]:
				return a, fmt.Sprintf("rank %d is wrong by itself too", a)
			case alone[a] == alone[b] && n > 1 && n > len(partners[b]):
				return a, fmt.Sprintf("rank %d is wrong with %d of the %d others, rank %d with %d", a, n, s.world-1, b, len(partners[b]))
			}
		}
		return r, "nothing tells which of the two is at fault, or the way between them"
	}
}
