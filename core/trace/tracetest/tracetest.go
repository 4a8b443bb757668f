// Package tracetest holds histories against the format of history files, for
// tests of whoever records or writes them.
package tracetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// Admitted fails unless every event of a history has the form of its kind.
func Admitted(t testing.TB, h *trace.History) {
	t.Helper()
	if err := h.Header.Validate(); err != nil {
		t.Error(err)
	}
	for e := range h.All {
		header := h.Header
		header.Rank = e.Rank
		if err := header.Admits(&e); err != nil {
			t.Errorf("rank %d: %v", e.Rank, err)
			return
		}
	}
}

// Written fails unless a log, written to a file, follows the JSON schema line by
// line and is read back equal.
func Written(t testing.TB, l *trace.Log) {
	t.Helper()
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	s := Compile(t, trace.JSONSchema())
	for i, line := range bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n")) {
		if err := Line(s, line); err != nil {
			t.Errorf("line %d: %v\n%.300s", i+1, err, line)
			return
		}
	}
	back, err := trace.Read(&b, "history")
	if err != nil {
		t.Error(err)
		return
	}
	if d := cmp.Diff(l.Header, back.Header); d != "" {
		t.Errorf("another header comes back: %s", d)
	}
	// As text, for a NaN to be equal to itself.
	want, got := l.Events(), back.Events()
	if len(want) != len(got) {
		t.Errorf("%d events come back of %d", len(got), len(want))
		return
	}
	for i := range want {
		if w, g := fmt.Sprintf("%+v", plain(want[i])), fmt.Sprintf("%+v", plain(got[i])); w != g {
			t.Errorf("event %d comes back as\n%s, was\n%s", i, g, w)
			return
		}
	}
}

// plain is an event without pointers.
func plain(e trace.Event) any {
	type values struct {
		trace.Event
		digest, span any
	}
	v := values{Event: e}
	if e.Digest != nil {
		v.digest = *e.Digest
	}
	if e.Span != nil {
		v.span = *e.Span
	}
	v.Event.Digest, v.Event.Span = nil, nil
	return v
}

// Compile compiles a JSON schema.
func Compile(t testing.TB, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Line holds one line of a file against the schema.
func Line(s *jsonschema.Schema, line []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}
