package trace

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// TestFieldsOfEvent: the checks know every field of Event, in its order, and
// each of them sees its own field alone.
func TestFieldsOfEvent(t *testing.T) {
	v := reflect.TypeFor[Event]()
	var want []string
	for i := range v.NumField() {
		if n := jsonName(v.Field(i)); n != "kind" && n != "rank" && n != "step" {
			want = append(want, n)
		}
	}
	var got []string
	all := sample()
	for i, f := range fields {
		got = append(got, f.name)
		var e Event
		if f.set(&e) || !f.set(&all) {
			t.Errorf("%s: does not tell zero from a value", f.name)
		}
		reflect.ValueOf(&e).Elem().Field(i + 3).Set(reflect.ValueOf(all).Field(i + 3))
		for _, o := range fields {
			if o.set(&e) != (o.name == f.name) {
				t.Errorf("of an event with %s alone %s says %v", f.name, o.name, o.set(&e))
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("fields\n%v, want\n%v", got, want)
	}
}

// TestForms: every kind has one form, of fields that exist, each named once.
func TestForms(t *testing.T) {
	seen := map[Kind]bool{}
	for _, f := range Forms() {
		if seen[f.Kind] || f.Says == "" {
			t.Errorf("%s: two forms, or one that says nothing", f.Kind)
		}
		seen[f.Kind] = true
		list := slices.Concat(f.Needs, f.May)
		for i, n := range list {
			if bitsOf([]string{n}) == 0 || slices.Contains(list[:i], n) {
				t.Errorf("%s: no field %q, or twice", f.Kind, n)
			}
		}
		if slices.Contains(list, "what") != (f.What != nil) && f.Kind != KindSpan && f.Kind != KindMemory && f.Kind != KindRefusal {
			t.Errorf("%s: values of what without the field, or the reverse", f.Kind)
		}
		if slices.Contains(list, "op") != (f.Op != nil) {
			t.Errorf("%s: values of op without the field, or the reverse", f.Kind)
		}
	}
	for _, k := range []Kind{KindSpan, KindData, KindTokens, KindPhase, KindDigest, KindLeaf, KindIssue, KindComm, KindScalar, KindSkip,
		KindChanged, KindDiff, KindUnmoved, KindDrill, KindGather, KindMemory, KindTap, KindMessage, KindLive, KindResume, KindRefusal,
		KindKernel, KindRoutine, KindDevice, KindStored, KindFile, KindTurns, KindHazard, KindEnd} {
		if !seen[k] {
			t.Errorf("%s: no form", k)
		}
		delete(seen, k)
	}
	if len(seen) > 0 {
		t.Errorf("forms of %v, which are no kinds", seen)
	}
}

// TestSamplesAreValid, and no longer when a field is added that is not of the
// kind, or one is taken away that it needs.
func TestSamplesAreValid(t *testing.T) {
	from := reflect.ValueOf(sample())
	for _, e := range samples() {
		if err := e.Validate(); err != nil {
			t.Errorf("%+v: %v", e, err)
			continue
		}
		f := forms()[e.Kind]
		for i, field := range fields {
			bad := e
			at := reflect.ValueOf(&bad).Elem().Field(i + 3)
			rule := "an event of this kind has none"
			switch {
			case !slices.Contains(f.Needs, field.name) && !slices.Contains(f.May, field.name):
				at.Set(from.Field(i + 3))
			case slices.Contains(f.Needs, field.name):
				rule = "missing, or zero"
				at.SetZero()
			default:
				continue
			}
			want := string(e.Kind) + " event: " + field.name + ": " + rule
			if err := bad.Validate(); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %q", e.Kind, err, want)
			}
		}
	}
}

// TestRefused: what each rule refuses, read from a file of rank 0 of two.
func TestRefused(t *testing.T) {
	digest := `"digest":"00000000000000000000000000000000"`
	for _, c := range []struct{ event, says string }{
		{`"kind":"sketch"`, `event of kind "sketch", which schema lockstep/history/v2 does not have`},
		{``, `event of kind "", which schema`},
		{`"kind":"KIND"`, `event of kind "KIND"`},
		{`"kind":"tokens","step":-1`, "tokens event: step: -1: must be at least 0"},
		{`"kind":"end","step":-2`, "end event: step: -2: must be at least -1"},
		{`"kind":"tokens","count":-7`, "tokens event: count: -7: must not be negative"},
		{`"kind":"tokens","text":"x"`, "tokens event: text: an event of this kind has none"},
		{`"kind":"end","rank":1`, "event of rank 1 in the history of rank 0"},
		{`"kind":"phase","what":"sideways","unit":"embed"`, `phase event: what: "sideways": known are forward, backward`},
		{`"kind":"comm","op":"all-to-all","ranks":[0]`, `comm event: op: "all-to-all": known are all-reduce,`},
		{`"kind":"message","op":"split","what":"forward",` + digest, `message event: op: "split": known are send, recv`},
		{`"kind":"comm","op":"split","ranks":[0],"group":"ep"`, `comm event: group: "ep": known are dp, pp, tp, kv, world`},
		{`"kind":"comm","op":"split","ranks":[0,2]`, "comm event: ranks: 2: the world has 2 ranks"},
		{`"kind":"comm","op":"split","ranks":[1,0,1]`, "comm event: ranks: 1: negative, or there twice"},
		{`"kind":"comm","op":"split","ranks":[-1]`, "comm event: ranks: -1: negative"},
		{`"kind":"comm","op":"split","ranks":[]`, "comm event: ranks: missing, or zero"},
		{`"kind":"comm","op":"send","ranks":[0,1],"peer":2`, "comm event: peer: 2: the world has 2 ranks"},
		{`"kind":"comm","op":"send","ranks":[0,1],"peer":-1`, "comm event: peer: -1: must not be negative"},
		{`"kind":"comm","op":"send","ranks":[0,1],"bytes":-1`, "comm event: bytes: -1"},
		{`"kind":"digest","what":"grad","tensor":"a","squares":-1,` + digest, "digest event: squares: -1: a sum of squares"},
		{`"kind":"comm","op":"send","ranks":[0,1],"moved":-2`, "comm event: moved: -2: must be at least -1"},
		{`"kind":"comm","op":"send","ranks":[0,1],"lo":4,"hi":3`, "comm event: lo: 4: beyond hi, which is 3"},
		{`"kind":"comm","op":"send","ranks":[0,1],"lo":-4,"hi":3`, "comm event: lo: -4"},
		{`"kind":"data","worker":-1`, "data event: worker: -1"},
		{`"kind":"data","micro":-1`, "data event: micro: -1"},
		{`"kind":"data","ids":[0,-2]`, "data event: ids: -2: must be at least -1"},
		{`"kind":"diff","what":"m","tensor":"a","ranks":[0]`, "diff event: ranks: [0]: must be two"},
		{`"kind":"diff","what":"m","tensor":"a","ranks":[0,1],"index":-1`, "diff event: index: -1"},
		{`"kind":"unmoved","tensor":"a","ranges":[[2,2]]`, "unmoved event: ranges: [2 2]: must ascend"},
		{`"kind":"unmoved","tensor":"a","ranges":[[-1,2]]`, "unmoved event: ranges: [-1 2]"},
		{`"kind":"unmoved","tensor":"a","count":4,"ranges":[[2,4],[3,5]]`, "unmoved event: ranges: [3 5]"},
		{`"kind":"unmoved","tensor":"a","count":5,"ranges":[[2,4],[4,6]]`, "unmoved event: ranges: 4 elements: count is 5"},
		{`"kind":"unmoved","tensor":"a","count":9223372036854775807,"ranges":[[-9223372036854775808,9223372036854775807]]`, "unmoved event: ranges: [-9223372036854775808"},
		{`"kind":"digest","what":"m","tensor":"a","digest":"00000000000000000000000000000000!2","count":1`, "digest event: digest: 2 elements are not finite of 1"},
		{`"kind":"digest","what":"m","tensor":"a",` + digest + `,"count":2,"data":"AAAAAA=="`, "digest event: data: 1 elements: count is 2"},
		{`"kind":"tap","what":"forward","unit":"embed","tensor":"a",` + digest + `,"hi":2,"count":2,"data":"AAAAAAAAAAAAAAAA"`, "tap event: data: 3 elements: not rows of 2 columns"},
		{`"kind":"tap","what":"forward","unit":"embed","tensor":"a",` + digest + `,"data":"AAAAAA=="`, "tap event: data: 1 elements: not rows of 0 columns"},
		{`"kind":"span","what":"m","span":{"Lo":2,"Hi":1}`, "span event: span: from 2 to 1: ends before it begins"},
	} {
		rank := `"rank":0,`
		if c.event == "" || strings.Contains(c.event, `"rank"`) {
			rank = ""
		}
		_, err := Read(strings.NewReader(header+`{`+rank+c.event+"}\n"), "f")
		if err == nil || !strings.HasPrefix(err.Error(), "f:2: "+c.says) {
			t.Errorf("%s: got %v, want an error that begins %q", c.event, err, "f:2: "+c.says)
		}
	}
}

// TestAtTheEdges: what just satisfies the rules.
func TestAtTheEdges(t *testing.T) {
	for _, event := range []string{
		`"kind":"end","step":-1`, `"kind":"data"`, `"kind":"data","ids":[-1,-1,0]`, `"kind":"comm","op":"barrier","ranks":[1,0],"peer":1`,
		`"kind":"message","op":"recv","what":"forward","digest":"00000000000000000000000000000000","lo":45,"hi":35`,
		`"kind":"unmoved","tensor":"a","count":3,"ranges":[[0,1],[1,3]]`, `"kind":"span","what":"grad.7","span":{}`,
		`"kind":"comm","op":"barrier","ranks":[0],"moved":-1`,
		`"kind":"changed","tensor":"a","count":1,"digest":"00000000000000000000000000000000!1"`,
		`"kind":"drill","op":"all-reduce","digest":"00000000000000000000000000000000!1"`, // guards are hashed, not counted
	} {
		if _, err := Read(strings.NewReader(header+`{"rank":0,`+event+"}\n"), "f"); err != nil {
			t.Errorf("%s: %v", event, err)
		}
	}
}

// TestOtherVersions: a history of another arithmetic or format is refused, be it older
// or newer.
func TestOtherVersions(t *testing.T) {
	valid := Header{Schema: Schema, Arithmetic: kernels.Arithmetic, World: 1}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{-kernels.Arithmetic - 1, -1, 1, 2, 5, 1 << 40} {
		h := valid
		h.Arithmetic += by
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("arithmetic version %d: this program has version %d", h.Arithmetic, kernels.Arithmetic)) {
			t.Errorf("arithmetic %d: %v", h.Arithmetic, err)
		}
	}
	for _, schema := range []string{"lockstep/history/v0", "lockstep/history/v1", "lockstep/history/v3", "lockstep/history/v7", "lockstep/history/v20", "lockstep/history", "lockstep/history/v2 "} {
		h := valid
		h.Schema = schema
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("schema %q", schema)) {
			t.Errorf("%s: %v", schema, err)
		}
		text := strings.Replace(header, "lockstep/history/v2", schema, 1)
		if _, err := Read(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("a file of %s: %v", schema, err)
		}
	}
	for _, n := range []int{1, 3, 7} {
		text := strings.Replace(header, `"arithmetic":2`, fmt.Sprintf(`"arithmetic":%d`, n), 1)
		if _, err := Read(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), "arithmetic version") {
			t.Errorf("a file of arithmetic %d: %v", n, err)
		}
	}
}

func TestSpec(t *testing.T) {
	if err := (Spec{}).Validate(); err == nil {
		t.Error("no spec at all is valid")
	}
	s := Spec{Observed: []byte(`{"trainer":"other"}`)}
	if err := s.Validate(); err != nil || s.Name() != "observed" || s.String() != `{"observed":{"trainer":"other"}}` || s.IsZero() {
		t.Errorf("%v: %v, %s", s, err, s.Name())
	}
	if s := (Spec{}); s.Name() != "no spec" || !s.IsZero() || s.String() != "{}" {
		t.Errorf("the zero spec is %s, %s", s.Name(), s)
	}
	if err := (Spec{Drill: []byte(`{"a"`)}).Validate(); err == nil || !strings.Contains(err.Error(), "drill") {
		t.Errorf("a spec cut off: %v", err)
	}
}

// TestValidateAllocatesNothing: it is called for every event that is read.
func TestValidateAllocatesNothing(t *testing.T) {
	all := samples()
	if n := testing.AllocsPerRun(10, func() {
		for i := range all {
			if len(all[i].Ranks) == 0 && all[i].Validate() != nil {
				t.Fatal("not valid")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	e := Event{Kind: KindComm, Op: names.OpSplit, Ranks: []int{0, 1, 2, 3}}
	if n := testing.AllocsPerRun(10, func() { _ = e.Validate() }); n != 0 {
		t.Errorf("ascending ranks: %v allocations", n)
	}
}
