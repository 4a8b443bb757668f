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
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", ".")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v (if go.mod is out of date: go mod tidy in %s)\n%s", err, module, out)
	}
	for _, name := range []string{"TestCommunicator", "TestCommunicatorWithABug", "TestBackend", "TestBackendWithABug", "TestTrainer", "TestTrainerWithABug"} {
		if !strings.Contains(string(out), "--- PASS: "+name+" (") {
			t.Errorf("%s did not run", name)
		}
	}
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
