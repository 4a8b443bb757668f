package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// maxConfigFile bounds a model configuration that is read from a file.
const maxConfigFile = 1 << 20

// Preset is the training configuration of a named model, or of the one described
// by a JSON file whose name ends in .json: the fields of a model.Config and,
// where the defaults do not suit, an "optimizer" object with those of an
// optim.Config (name, lr, beta1, beta2, eps, momentum, decay, ...).
func Preset(name string) (spec.Config, error) {
	if !strings.HasSuffix(name, ".json") {
		return spec.Preset(name)
	}
	b, err := files.Read(name, maxConfigFile)
	if err != nil {
		return spec.Config{}, fmt.Errorf("config: %w", err)
	}
	return configOf(b, name)
}

// configOf is the configuration that the content of a file of that name describes.
func configOf(b []byte, name string) (spec.Config, error) {
	c := spec.Config{Text: "default", Seed: 1}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	file := struct {
		*model.Config
		Optimizer *optim.Config `json:"optimizer"`
	}{&c.Model, &c.Optimizer}
	if err := dec.Decode(&file); err != nil {
		return c, fmt.Errorf("config %s: %w", name, err)
	}
	if dec.More() {
		return c, fmt.Errorf("config %s: holds more than one value", name)
	}
	if err := once(json.NewDecoder(bytes.NewReader(b)), ""); err != nil {
		return c, fmt.Errorf("config %s: %w", name, err)
	}
	if c.Model.Name == "" {
		c.Model.Name = strings.TrimSuffix(filepath.Base(name), ".json")
	}
	if _, err := model.Named(c.Model.Name); err == nil {
		return c, fmt.Errorf("config %s: name %q: is that of a named configuration; give it another", name, c.Model.Name)
	}
	if names.Printable(c.Model.Name) != c.Model.Name {
		return c, fmt.Errorf("config %s: name %q: must be of printable characters", name, c.Model.Name)
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("config %s: %w", name, err)
	}
	return c, nil
}

// once refuses a key that an object of the JSON value which dec reads has twice: only
// one of the two would count. Letters that differ in case are the same, as they are to
// encoding/json.
func once(dec *json.Decoder, path string) error {
	t, err := dec.Token()
	open, ok := t.(json.Delim)
	if err != nil || !ok {
		return err
	}
	var keys []string
	for dec.More() {
		at := path
		if open == '{' {
			t, err := dec.Token()
			key, ok := t.(string)
			if err != nil || !ok {
				return err
			}
			if at = strings.TrimPrefix(path+"."+key, "."); slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, key) }) {
				return fmt.Errorf("key %q: is given twice", at)
			}
			keys = append(keys, key)
		}
		if err := once(dec, at); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the end of the object or list
	return err
}
