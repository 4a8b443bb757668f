package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// read decodes JSON that has nothing two readers could take for two things: at
// every depth no member is there twice, letter case aside. White space between
// the tokens says nothing and is accepted.
func read(b []byte, to any) error {
	if err := json.Unmarshal(b, to); err != nil { // checks the syntax and the depth, too
		return err
	}
	return distinct(json.NewDecoder(bytes.NewReader(b)))
}

// distinct reads one value of valid JSON.
func distinct(in *json.Decoder) error {
	t, err := in.Token()
	if err != nil || t != json.Delim('{') && t != json.Delim('[') {
		return err
	}
	seen := map[string]bool{}
	for in.More() {
		if t == json.Delim('{') {
			key, err := in.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(key))
			if seen[name] {
				return fmt.Errorf("%q is there twice", key)
			}
			seen[name] = true
		}
		if err := distinct(in); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}

// exactly decodes an object that has exactly the named members, spelled so, and may have
// those that come before a "|".
func exactly(b []byte, to any, names ...string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	may := slices.Index(names, "|")
	for _, name := range names[:max(may, 0)] {
		delete(members, name)
	}
	names = names[may+1:]
	for name := range members {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown field %q", name)
		}
	}
	for _, name := range names {
		if members[name] == nil {
			return fmt.Errorf("has no field %q", name)
		}
	}
	return json.Unmarshal(b, to)
}

// UnmarshalJSON implements json.Unmarshaler: every field must be there, and no
// other.
func (f *File) UnmarshalJSON(b []byte) error {
	type plain File
	return exactly(b, (*plain)(f), "name", "bytes", "sha256")
}

// UnmarshalJSON implements json.Unmarshaler: every field must be there, but for
// simulated, and no other.
func (m *Manifest) UnmarshalJSON(b []byte) error {
	type plain Manifest
	return exactly(b, (*plain)(m), "simulated", "|", "schema", "arithmetic", "step", "counter", "spec", "digests", "files")
}

// UnmarshalJSON implements json.Unmarshaler: every field must be there, and no
// other, and as many sides and offsets as an entry has.
func (e *entry) UnmarshalJSON(b []byte) error {
	var x struct {
		DType   string  `json:"dtype"`
		Shape   []int   `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := exactly(b, &x, "dtype", "shape", "data_offsets"); err != nil {
		return err
	}
	if len(x.Shape) != 2 || len(x.Offsets) != 2 { // an array of Go would cut or fill them
		return errors.New("needs two sides and two offsets")
	}
	*e = entry{x.DType, [2]int(x.Shape), [2]int64(x.Offsets)}
	return nil
}
