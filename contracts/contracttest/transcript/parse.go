package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Parse reads an event of one line, and says which fields were given.
func Parse(line string) (e trace.Event, given []string, err error) {
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return e, nil, fmt.Errorf("no event: %w", err)
	}
	parts := []string{`"kind":` + strconv.Quote(words[0])}
	for _, w := range words[1:] {
		name, value, has := strings.Cut(w, "=")
		text, err := field(name, value, has)
		if err != nil {
			return e, nil, fmt.Errorf("%s: %w", name, err)
		}
		given = append(given, name)
		parts = append(parts, strconv.Quote(name)+":"+text)
	}
	dec := json.NewDecoder(strings.NewReader("{" + strings.Join(parts, ",") + "}"))
	dec.DisallowUnknownFields()
	return e, given, dec.Decode(&e)
}

// split cuts a line at blanks outside quotes.
func split(line string) ([]string, error) {
	var out []string
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		end := strings.IndexAny(rest, " \t\"")
		if end < 0 {
			end = len(rest)
		}
		word := rest[:end]
		if end < len(rest) && rest[end] == '"' {
			quoted, err := strconv.QuotedPrefix(rest[end:])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rest[end:], err)
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			word, end = word+text, end+len(quoted)
		}
		out, rest = append(out, word), rest[end:]
	}
	return out, nil
}

// field is the JSON of a field's value.
func field(name, value string, has bool) (string, error) {
	f, ok := named(name)
	switch {
	case !ok || name == "kind" || name == "rank":
		return "", fmt.Errorf("no such field")
	case f.Type.Kind() == reflect.Bool && !has:
		return "true", nil
	case !has:
		return "", fmt.Errorf("has no value")
	}
	switch f.Type {
	case reflect.TypeFor[*kernels.Digest]():
		return digest(value)
	case reflect.TypeFor[*kernels.Span]():
		lo, hi, _ := strings.Cut(value, "-")
		return fmt.Sprintf(`{"space":"host","Lo":%s,"Hi":%s}`, lo, hi), nil
	case reflect.TypeFor[[][2]int64]():
		return "[[" + strings.NewReplacer("-", ",", ",", "],[").Replace(value) + "]]", nil
	case reflect.TypeFor[trace.Floats]():
		return floats(value)
	}
	switch f.Type.Kind() {
	case reflect.String:
		return strconv.Quote(value), nil
	case reflect.Slice:
		return "[" + value + "]", nil
	case reflect.Float64:
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(trace.Float(x))
		return string(b), err
	case reflect.Uint32, reflect.Uint64:
		x, err := strconv.ParseUint(value, 0, 64)
		return strconv.FormatUint(x, 10), err
	}
	return value, nil
}

// named is the field of an event of a name in JSON.
func named(name string) (reflect.StructField, bool) {
	t := reflect.TypeFor[trace.Event]()
	for i := range t.NumField() {
		if n, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); n == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

// digest is a digest's own text, or that of a word.
func digest(value string) (string, error) {
	var d kernels.Digest
	if d.UnmarshalText([]byte(value)) == nil {
		return strconv.Quote(value), nil
	}
	word, count, odd := strings.Cut(value, "!")
	d = kernels.Digest{A: kernels.TensorID(word), B: uint64(len(word))}
	if odd {
		n, err := strconv.ParseUint(count, 10, 64)
		if err != nil {
			return "", err
		}
		d.NonFinite = n
	}
	b, err := d.MarshalText()
	return strconv.Quote(string(b)), err
}

// floats are the elements of a list.
func floats(value string) (string, error) {
	var out trace.Floats
	for x := range strings.SplitSeq(value, ",") {
		v, err := strconv.ParseFloat(x, 32)
		if err != nil {
			return "", err
		}
		out = append(out, float32(v))
	}
	b, err := json.Marshal(out)
	return string(b), err
}

// matches reports whether an event is of a pattern's kind and has its given
// fields, digests too.
func matches(e, pattern trace.Event, given []string) bool {
	if e.Kind != pattern.Kind {
		return false
	}
	for _, name := range given {
		f, _ := named(name)
		a, err := json.Marshal(reflect.ValueOf(e).FieldByIndex(f.Index).Interface())
		b, err2 := json.Marshal(reflect.ValueOf(pattern).FieldByIndex(f.Index).Interface())
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			return false
		}
	}
	return true
}

// assign sets fields of an event to those of another.
func assign(e *trace.Event, from trace.Event, fields []string) {
	for _, name := range fields {
		f, _ := named(name)
		reflect.ValueOf(e).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(from).FieldByIndex(f.Index))
	}
}
