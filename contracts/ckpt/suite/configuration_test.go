package suite_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	ckpts "github.com/lockstep-ml/lockstep/contracts/ckpt"
	ckpt "github.com/lockstep-ml/lockstep/contracts/ckpt/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Every field of the configuration is classed, once: as one that must be the same, or
// as one that may differ, with the reason.
func TestFieldsAreClassed(t *testing.T) {
	var classed []string
	for _, f := range ckpts.Fields() {
		classed = append(classed, f.Path)
	}
	all := map[string]string{}
	flat(t, reflect.ValueOf(spec.Config{}), "", all)
	has := slices.Sorted(maps.Keys(all))
	if slices.Sort(classed); !slices.Equal(classed, has) {
		t.Errorf("classed are %v, the configuration has %v", classed, has)
	}
}

// Every damage of the configuration leaves one that is valid, and other than it was in
// that field alone: the field is all that there is to refuse.
func TestOtherConfigurationsAreValid(t *testing.T) {
	whole, err := ckpt.DamagedSpec()
	if err != nil {
		t.Fatal(err)
	}
	fields := func(b []byte) map[string]string {
		c, err := spec.Parse(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		out := map[string]string{}
		flat(t, reflect.ValueOf(c), "", out)
		return out
	}
	was := fields(whole)
	of := map[string][]string{ckpts.Otherwise: nil}
	for _, f := range ckpts.Fields() {
		if f.May == "" {
			of[ckpts.OfAnother(f.Path)] = []string{f.Path}
		} else if f.Path != "plan.pp" && f.Path != "plan.virtual" { // one block has one stage, of one chunk
			of[ckpts.Otherwise] = append(of[ckpts.Otherwise], f.Path)
		}
	}
	for name, want := range of {
		dir := t.TempDir()
		path := filepath.Join(dir, checkpoint.ManifestName)
		b, err := json.Marshal(checkpoint.Manifest{Spec: whole})
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err == nil {
			err = ckpt.Damage(name, dir)
		}
		if err == nil {
			b, err = os.ReadFile(path)
		}
		var m checkpoint.Manifest
		if err != nil || json.Unmarshal(b, &m) != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var differ []string
		for path, x := range fields(m.Spec) {
			if was[path] != x {
				differ = append(differ, path)
			}
		}
		slices.Sort(differ)
		if slices.Sort(want); !slices.Equal(differ, want) {
			t.Errorf("%s: differs in %v, want %v", name, differ, want)
		}
	}
}

// flat lists the fields of a struct by their paths, as text.
func flat(t *testing.T, v reflect.Value, path string, out map[string]string) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).Kind() == reflect.Struct {
			flat(t, v.Field(i), path+name+".", out)
			continue
		}
		b, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			t.Fatal(err)
		}
		out[path+name] = string(b)
	}
}
