package trace

import "testing"

// A history is whole where every rank's ends once, with nothing behind but what
// others add.
func TestCutOff(t *testing.T) {
	end, event := Event{Kind: KindEnd}, Event{Kind: KindScalar}
	for _, x := range []struct {
		name  string
		ranks map[int][]Event
		want  string
	}{
		{"whole", map[int][]Event{0: {event, end}, 1: {end}}, ""},
		{"others add", map[int][]Event{0: {event, end, {Kind: KindTurns}, {Kind: KindHazard}, {Kind: KindStored}, {Kind: KindFile}, {Kind: KindRefusal}}}, ""},
		{"no rank", nil, ""},
		{"no end", map[int][]Event{0: {event, end}, 1: {event}}, "rank 1 did not record its end: its history is cut off"},
		{"nothing", map[int][]Event{0: nil}, "rank 0 did not record its end: its history is cut off"},
		{"in the middle", map[int][]Event{0: {end, event}}, "rank 0 recorded a scalar event after its end"},
		{"twice", map[int][]Event{0: {event, end, end}}, "rank 0 recorded its end twice"},
		{"several", map[int][]Event{2: {event}, 5: {end, end}, 7: {event}, 8: {end}}, "rank 2 did not record its end: its history is cut off; so it is with 2 more ranks"},
	} {
		h := History{Header: Header{World: 9}, Ranks: x.ranks}
		if got := h.CutOff(); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

func TestSpans(t *testing.T) {
	upTo := func(n, by int) (out []int) {
		for i := range n {
			out = append(out, i*by)
		}
		return out
	}
	for _, x := range []struct {
		numbers []int
		want    string
	}{
		{nil, ""}, {[]int{4}, "4"}, {[]int{1, 2}, "1, 2"}, {[]int{1, 2, 3}, "1 to 3"}, {[]int{0, 2, 3, 4, 5, 9}, "0, 2 to 5, 9"},
		{upTo(1<<20, 1), "0 to 1048575"}, {upTo(8, 2), "0, 2, 4, 6, 8, 10, 12, 14"}, {upTo(100, 2), "0, 2, 4, 6, 8, 10, 12, 14 and 92 more"},
	} {
		if got := Spans(x.numbers); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
