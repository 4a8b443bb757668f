package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Spec says what was run, in the words of who ran it: exactly one field is set,
// to a JSON object. The zero value is a run that needs none.
type Spec struct {
	// Lockstep replays a training run of this module: a spec.Config.
	Lockstep json.RawMessage `json:"lockstep,omitempty"`
	// Drill replays a drill of communicators or of kernels.
	Drill json.RawMessage `json:"drill,omitempty"`
	// Observed describes a run of another trainer, which nothing here can replay.
	Observed json.RawMessage `json:"observed,omitempty"`
}

// Strict reads one JSON value and refuses fields that it does not have, at any depth,
// by name: what such a field says would be lost without a word.
func Strict(b []byte, v any) error { return newLines().parse(b, v) }

// IsZero reports whether no field is set.
func (s Spec) IsZero() bool { return s.Lockstep == nil && s.Drill == nil && s.Observed == nil }

// Validate refuses a spec that is not exactly one JSON object.
func (s Spec) Validate() error {
	var set []string
	for _, f := range s.forms() {
		if f.text == nil {
			continue
		}
		set = append(set, f.name)
		if !bytes.HasPrefix(f.text, []byte("{")) || !json.Valid(f.text) {
			return fmt.Errorf("spec: %s: %.40q is no JSON object", f.name, f.text)
		}
	}
	if len(set) != 1 {
		return fmt.Errorf("spec: has %d of lockstep, drill and observed %v: must have one", len(set), set)
	}
	return nil
}

// specForm is one of a spec's fields.
type specForm struct {
	name string
	text json.RawMessage
}

func (s Spec) forms() []specForm {
	return []specForm{{"lockstep", s.Lockstep}, {"drill", s.Drill}, {"observed", s.Observed}}
}

// String is the spec as JSON, in which equal specs are equal.
func (s Spec) String() string {
	var out []string
	for _, f := range s.forms() {
		if f.text != nil {
			out = append(out, fmt.Sprintf("%q:%s", f.name, f.text))
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

// Name says which field is set: "lockstep", "drill", "observed", or "no spec".
func (s Spec) Name() string {
	for _, f := range s.forms() {
		if f.text != nil {
			return f.name
		}
	}
	return "no spec"
}

// UnmarshalJSON reads a spec and refuses every other object, such as a
// configuration that stands there bare.
func (s *Spec) UnmarshalJSON(b []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	*s = Spec{Lockstep: in["lockstep"], Drill: in["drill"], Observed: in["observed"]}
	for _, f := range s.forms() {
		delete(in, f.name)
	}
	var other []string
	for name := range in {
		other = append(other, name)
	}
	if slices.Sort(other); len(other) > 0 {
		return fmt.Errorf("spec: has %q: must be {\"lockstep\": {...}}, {\"drill\": {...}} or {\"observed\": {...}}", other[0])
	}
	return s.Validate()
}
