package trace

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

var update = flag.Bool("update", false, "rewrite doc.go's table, schema.json and testdata from the forms and the code")

// golden fails unless a file has the content, or with -update gives it that.
func golden(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s is not what the code says (go test -update rewrites it):\n%s", name, d)
	}
}

// TestPackageComment: the table of kinds in doc.go is that of the forms.
func TestPackageComment(t *testing.T) {
	const first, last = "// # Kinds of events\n", "//\n// # Digests\n"
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), first)
	_, tail, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("doc.go has no %q before %q", first, last)
	}
	golden(t, "doc.go", []byte(head+first+"//\n"+table()+last+tail))
}

// table renders the forms as lines of a package comment.
func table() string {
	var b strings.Builder
	line := func(name string, indent int, text string) {
		const width = 104
		words, at := strings.Fields(text), 0
		for i := 0; i < len(words); i = at {
			n := 0
			for at = i; at < len(words) && (at == i || n+len(words[at]) < width-indent); at++ {
				n += len(words[at]) + 1
			}
			fmt.Fprintf(&b, "//\t%-*s %s\n", indent, name, strings.Join(words[i:at], " "))
			name = ""
		}
	}
	for _, f := range Forms() {
		line(string(f.Kind), 8, f.Says)
		fields := "no other fields"
		switch {
		case len(f.Needs) > 0 && len(f.May) > 0:
			fields = "needs " + strings.Join(f.Needs, ", ") + "; may have " + strings.Join(f.May, ", ")
		case len(f.Needs) > 0:
			fields = "needs " + strings.Join(f.Needs, ", ")
		case len(f.May) > 0:
			fields = "may have " + strings.Join(f.May, ", ")
		}
		if f.First < 0 {
			fields += "; step from -1"
		}
		line("", 8, fields)
		var bare []string
		for _, v := range f.What {
			if v.Says == "" {
				bare = append(bare, v.Name)
				continue
			}
			line("          what "+v.Name, 27, v.Says)
		}
		if len(bare) > 0 {
			line("", 8, "what: "+strings.Join(bare, ", "))
		}
		if len(f.Op) > 0 {
			line("", 8, "op: "+strings.Join(f.Op, ", "))
		}
	}
	return b.String()
}

// object is a JSON object with its members in order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON keeps the order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		v, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s%q:%s", map[bool]string{true: "{", false: ","}[i == 0], m.name, v)
	}
	if len(o) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func refTo(name string) object { return object{{"$ref", "#/$defs/" + name}} }

// shape is the JSON schema of a Go type, as its encoding is.
func shape(t *testing.T, v reflect.Type) object {
	t.Helper()
	list := func(of object, more ...member) object {
		return append(object{{"type", "array"}, {"items", of}}, more...)
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v {
	case reflect.TypeFor[kernels.Digest](), reflect.TypeFor[kernels.Span](), reflect.TypeFor[Float](), reflect.TypeFor[Spec]():
		return refTo(strings.ToLower(v.Name()))
	case reflect.TypeFor[Floats]():
		return refTo("elements")
	case reflect.TypeFor[names.Axis]():
		return object{{"enum", []names.Axis{names.DP, names.PP, names.TP, names.KV, names.World}}}
	}
	switch v.Kind() {
	case reflect.String:
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Uint32:
		return object{{"type", "integer"}, {"minimum", 0}, {"maximum", 1<<32 - 1}}
	case reflect.Uint64:
		return object{{"type", "integer"}, {"minimum", 0}, {"maximum", json.Number("18446744073709551615")}}
	case reflect.Int, reflect.Int64:
		return refTo("count")
	case reflect.Slice:
		return list(shape(t, v.Elem()))
	case reflect.Array:
		return list(shape(t, v.Elem()), member{"minItems", v.Len()}, member{"maxItems", v.Len()})
	}
	t.Fatalf("no JSON schema for %v", v)
	return nil
}

// schema makes the JSON schema of a line from the Go types and the forms.
func schema(t *testing.T) []byte {
	t.Helper()
	event, header := map[string]object{}, object{}
	v := reflect.TypeFor[Event]()
	for i := range v.NumField() {
		event[jsonName(v.Field(i))] = shape(t, v.Field(i).Type)
	}
	event["moved"] = object{{"type", "integer"}, {"minimum", -1}}
	event["ids"] = object{{"type", "array"}, {"items", object{{"type", "integer"}, {"minimum", -1}}}}
	v = reflect.TypeFor[Header]()
	for i := range v.NumField() {
		s := shape(t, v.Field(i).Type)
		switch n := jsonName(v.Field(i)); n {
		case "schema":
			s = object{{"const", Schema}}
		case "world":
			s = object{{"type", "integer"}, {"minimum", 1}, {"maximum", maxWorld}}
		}
		header = append(header, member{jsonName(v.Field(i)), s})
	}
	word := func(pattern string) object { return object{{"type", "string"}, {"pattern", pattern}} }
	one := object{{"type", "object"}}
	defs := object{
		{"header", object{{"description", "the first line of a rank's history"}, {"type", "object"},
			{"required", []string{"schema", "arithmetic", "rank", "world", "plan", "model", "backend"}}, {"additionalProperties", false}, {"properties", header}}},
		{"spec", object{{"description", "what was run: a training run of lockstep, a drill of communicators or kernels, or what a recorder saw of another trainer"},
			{"type", "object"}, {"minProperties", 1}, {"maxProperties", 1}, {"additionalProperties", false},
			{"properties", object{{"lockstep", one}, {"drill", one}, {"observed", one}}}}},
		{"count", object{{"type", "integer"}, {"minimum", 0}, {"maximum", json.Number("9223372036854775807")}}},
		{"digest", append(word("^[0-9a-fA-F]{32}(![0-9]+)?$"), member{"description", "sums A and B as 16 hexadecimal digits each; after ! the number of elements that are not finite"})},
		{"span", object{{"description", "half-open addresses within a space"}, {"type", "object"}, {"required", []string{"Lo", "Hi"}}, {"additionalProperties", false},
			{"properties", object{{"space", shape(t, reflect.TypeFor[string]())}, {"Lo", shape(t, reflect.TypeFor[uint64]())}, {"Hi", shape(t, reflect.TypeFor[uint64]())}}}}},
		{"float", object{{"description", "a float64"}, {"anyOf", []object{{{"type", "number"}}, {{"enum", []string{"NaN", "+Inf", "-Inf"}}}}}}},
		{"elements", append(word("^[A-Za-z0-9+/]*={0,2}$"), member{"description", "float32 values, little-endian, in base64"})},
	}
	var kinds []Kind
	var choices []object
	for _, f := range Forms() {
		kinds = append(kinds, f.Kind)
		choices = append(choices, object{{"if", object{{"properties", object{{"kind", object{{"const", f.Kind}}}}}}}, {"then", refTo(string(f.Kind) + "-event")}})
		defs = append(defs, member{string(f.Kind) + "-event", formSchema(f, event)})
	}
	defs = append(defs, member{"event", object{{"description", "any other line"}, {"type", "object"}, {"required", []string{"kind", "rank", "step"}},
		{"properties", object{{"kind", object{{"enum", kinds}}}}}, {"allOf", choices}}})
	return append(layout(t, object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", "https://github.com/lockstep-ml/lockstep/core/trace/schema.json"},
		{"title", "lockstep history, version 2: one line of a rank's file"},
		{"description", "Rules between fields (lo not beyond hi, ranks within the world, as many data as count) are in the package's documentation."},
		{"if", object{{"required", []string{"schema"}}}}, {"then", refTo("header")}, {"else", refTo("event")},
		{"$defs", defs},
	}, ""), '\n')
}

// layout writes a value on one line where that is short, else its members and
// items on lines of their own.
func layout(t *testing.T, v any, indent string) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	inner, end := indent+"  ", "\n"+indent
	switch v := v.(type) {
	case object:
		if len(b)+len(indent) <= 120 {
			break
		}
		b = []byte("{")
		for i, m := range v {
			b = fmt.Appendf(b, "%.*s\n%s%q: %s", min(i, 1), ",", inner, m.name, layout(t, m.value, inner))
		}
		b = append(b, end+"}"...)
	case []object:
		b = []byte("[")
		for i, o := range v {
			b = fmt.Appendf(b, "%.*s\n%s%s", min(i, 1), ",", inner, layout(t, o, inner))
		}
		b = append(b, end+"]"...)
	}
	return b
}

// formSchema is the schema of the events of one form.
func formSchema(f Form, event map[string]object) object {
	props := object{{"kind", object{{"const", f.Kind}}}, {"rank", event["rank"]}, {"step", object{{"type", "integer"}, {"minimum", f.First}}}}
	for _, field := range fields {
		if !slices.Contains(f.Needs, field.name) && !slices.Contains(f.May, field.name) {
			continue
		}
		s := slices.Clone(event[field.name])
		needed := slices.Contains(f.Needs, field.name)
		switch {
		case field.name == "what" && f.What != nil:
			s = object{{"enum", forms()[f.Kind].what}}
		case field.name == "op":
			s = object{{"enum", f.Op}}
		case field.name == "ranks":
			s = append(s, member{"uniqueItems", true})
			if f.Kind == KindDiff {
				s = append(s, member{"minItems", 2}, member{"maxItems", 2})
			} else if needed {
				s = append(s, member{"minItems", 1})
			}
		case needed && len(s) > 0 && s[0].value == "string":
			s = append(s, member{"minLength", 1})
		}
		props = append(props, member{field.name, s})
	}
	return object{{"description", f.Says}, {"required", append([]string{"kind", "rank", "step"}, f.Needs...)}, {"additionalProperties", false}, {"properties", props}}
}

// TestSchemaIsThatOfTheForms: schema.json follows from the Go types and the forms.
func TestSchemaIsThatOfTheForms(t *testing.T) {
	golden(t, "schema.json", schema(t))
	if !*update && JSONSchema() != string(schema(t)) {
		t.Error("another schema is embedded")
	}
}
