package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/spec"
)

// may lists the fields of a configuration that may differ where a run goes on: no bit
// depends on them. The text is known by its hash.
var may = [...]string{"plan", "steps", "backend", "evidence", "text"}

// compatible refuses a run that is not of the stored configuration, by the name of the
// field. All fields must agree but those that may differ: one that is added to the
// configuration must, too.
func compatible(stored json.RawMessage, cfg spec.Config) error {
	old, err := spec.Parse(stored)
	if err != nil {
		return err
	}
	was, err := fieldsOf(&old)
	if err != nil {
		return err
	}
	is, err := fieldsOf(&cfg)
	if err != nil {
		return err
	}
	for _, name := range may {
		delete(was, name)
		delete(is, name)
	}
	return equal("", was, is)
}

// fieldsOf is a configuration by the names that it is stored under; a field of no value
// may be missing.
func fieldsOf(c *spec.Config) (out map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(c.Spec()))
	dec.UseNumber() // a seed is not a float64
	return out, dec.Decode(&out)
}

// equal compares fields, objects among them by their own.
func equal(path string, was, is map[string]any) error {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		a, isObject := was[name].(map[string]any)
		if b, ok := is[name].(map[string]any); ok && isObject {
			if err := equal(at, a, b); err != nil {
				return err
			}
		} else if !reflect.DeepEqual(was[name], is[name]) {
			return fmt.Errorf("%s is %s there and %s here: must be equal", at, said(was[name]), said(is[name]))
		}
	}
	return nil
}

// said is a value as it is stored.
func said(x any) string {
	if x == nil {
		return "of no value"
	}
	b, _ := json.Marshal(x) // it was read from JSON
	return string(b)
}
