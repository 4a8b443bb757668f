package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
)

// Listed is what a directory that runs store in holds of one step.
type Listed struct {
	Dir  string
	Step int
	// Manifest is that of a complete checkpoint, whose files were not looked at.
	Manifest Manifest
	// Err says why it is none: it was not finished, or its manifest cannot be read.
	Err error
}

// List lists the steps in a directory, the newest first; none where there is no
// such directory.
func List(root string) ([]Listed, error) {
	entries, err := os.ReadDir(root)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Listed
	for _, e := range entries {
		name, pending := strings.CutPrefix(e.Name(), tmp)
		step, ok := parseDir(name)
		if !ok {
			continue
		}
		l := Listed{Dir: filepath.Join(root, e.Name()), Step: step}
		switch _, err := os.Stat(filepath.Join(l.Dir, ManifestName)); {
		case pending:
			l.Err = fmt.Errorf("was not finished")
		case os.IsNotExist(err):
			l.Err = fmt.Errorf("has no %s", ManifestName)
		default:
			l.Manifest, l.Err = peek(l.Dir)
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b Listed) int { return b.Step - a.Step })
	return out, nil
}

// peek reads a manifest.
func peek(dir string) (m Manifest, err error) {
	b, err := files.Read(filepath.Join(dir, ManifestName), maxManifest)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestName), err)
	}
	return m, nil
}

// tmp begins the names of what is not complete.
const tmp = ".tmp-"

// parseDir reads what DirName wrote.
func parseDir(name string) (step int, ok bool) {
	n, err := fmt.Sscanf(name, "step-%d", &step)
	return step, err == nil && n == 1 && step >= 0 && name == DirName(step)
}
