package independent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// maxDepth is how deep JSON may be nested.
const maxDepth = 16

// members reads a JSON object that is all of b, white space aside, in its order. It
// refuses a name given twice: readers disagree about which of the two counts.
func members(b []byte) (out []member, err error) {
	in := json.NewDecoder(bytes.NewReader(b))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("no JSON object: %v", err)
	}
	for in.More() {
		var m member
		t, err := in.Token()
		if err != nil {
			return nil, err
		}
		m.name, _ = t.(string)
		if err := in.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%q: %w", m.name, err)
		}
		out = append(out, m)
	}
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(b[in.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the object", len(rest))
	}
	seen := map[string]bool{}
	for _, m := range out {
		name := strings.ToLower(m.name)
		if seen[name] {
			return nil, fmt.Errorf("%q is given twice", m.name)
		}
		seen[name] = true
	}
	return out, nil
}

// single refuses a name given twice in any object within a JSON value.
func single(b json.RawMessage, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	var inner []json.RawMessage
	switch b[0] {
	case '{':
		list, err := members(b)
		if err != nil {
			return err
		}
		for _, m := range list {
			inner = append(inner, m.value)
		}
	case '[':
		if err := json.Unmarshal(b, &inner); err != nil {
			return err
		}
	}
	for _, x := range inner {
		if err := single(x, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// fields decodes an object that has exactly the members that are named, into to.
func fields(b []byte, to any, names ...string) error {
	list, err := members(b)
	if err != nil {
		return err
	}
	for _, m := range list {
		if !slices.Contains(names, m.name) {
			return fmt.Errorf("unknown field %q", m.name)
		}
	}
	if len(list) != len(names) { // no name is there twice
		return fmt.Errorf("%d fields: must have %v", len(list), names)
	}
	return json.Unmarshal(b, to)
}
