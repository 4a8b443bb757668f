package authors

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is the example of another trainer's repository.
var module = filepath.Join("..", "testdata", "othertrainer")

// TestOtherTrainer builds and tests the module as its author would, with its own
// go.mod and without a network. Its tests hold its parts against the suites and
// see the bug that is planted in each.
func TestOtherTrainer(t *testing.T) {
	lookAtSources(t)
	out := runGo(t, "test", "-count=1", "-v", ".")
	for _, name := range []string{"TestCommunicator", "TestCommunicatorWithABug", "TestBackend", "TestBackendWithABug", "TestTrainer", "TestTrainerWithABug"} {
		if !strings.Contains(out, "--- PASS: "+name+" (") {
			t.Errorf("%s did not run", name)
		}
	}
}

// lookAtSources lists the directory of every package that the module builds from
// this repository. The go command keeps a passed test until a file or directory
// changes that the test itself has read; it does not see what commands read that
// the test runs.
func lookAtSources(t *testing.T) {
	dirs := strings.Fields(runGo(t, "list", "-deps", "-test", "-f", "{{with .Module}}{{if or .Main .Replace}}{{$.Dir}}{{end}}{{end}}", "."))
	if len(dirs) < 10 {
		t.Fatalf("the module is built from %d packages of this repository", len(dirs))
	}
	for _, dir := range dirs {
		if _, err := os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join("..", "..", "go.mod")); err != nil {
		t.Fatal(err)
	}
}

// runGo runs the go command in the module and returns what it printed.
func runGo(t *testing.T, args ...string) string {
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v (if go.mod is out of date: make tidy)\n%s", cmd, err, out)
	}
	return string(out)
}

// TestReadmeNamesWhatExists: every file and test that the guide names is there.
func TestReadmeNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(module, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune("` ,|\n", r) }) {
		if !strings.HasSuffix(word, ".go") {
			continue
		}
		named++
		if _, err := os.Stat(filepath.Join(module, word)); err != nil {
			t.Error(err)
		}
	}
	if named < 6 {
		t.Errorf("the guide names %d files", named)
	}
}
