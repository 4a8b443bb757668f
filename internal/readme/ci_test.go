package readme

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are the targets that .ci/run leaves to whoever has the time, or what they need.
func elsewhere() map[string]string {
	return map[string]string{
		"check-authors":   "is a package of make test",
		"test-cuda-sweep": "needs a GPU; test-cuda-smoke has a sample on a simulated one",
		"test-soak":       "takes many minutes; make test has a short form of each part",
		"verify-sim":      "takes many minutes; test-cuda has two contracts of it, and the rest kernel by kernel",
	}
}

// What a pull request runs is what a person can run: .ci/run and nothing else, on every
// architecture; and that runs every check and every test that there is a target for.
func TestEveryCheckIsRun(t *testing.T) {
	text := func(name string) string {
		b, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	flow := text(".github/workflows/ci.yml")
	runs := regexp.MustCompile(`(?m)^ *-? *run: *(.*)$`).FindAllStringSubmatch(flow, -1)
	if len(runs) != 1 || runs[0][1] != ".ci/run" || strings.Contains(flow, "if:") {
		t.Errorf("the workflow runs %q, or some of it under conditions; want .ci/run alone, always", runs)
	}
	for _, runner := range []string{"ubuntu-24.04,", "ubuntu-24.04-arm]"} {
		if !strings.Contains(flow, runner) {
			t.Errorf("the workflow does not run on %s", runner)
		}
	}
	targets := map[string]bool{}
	prerequisites := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):(.*)$`).FindAllStringSubmatch(text("Makefile"), -1) {
		before, _, _ := strings.Cut(m[2], "##")
		targets[m[1]], prerequisites[m[1]] = true, strings.Fields(before)
	}
	run := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^step (?:as_root )?make ([a-z0-9-]+)`).FindAllStringSubmatch(text(".ci/run"), -1) {
		if !targets[m[1]] {
			t.Errorf(".ci/run makes %s, which the Makefile has not", m[1])
		}
		for _, name := range append(prerequisites[m[1]], m[1]) {
			run[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		checks := strings.HasPrefix(name, "check-") || strings.HasPrefix(name, "test-") || name == "test" || strings.HasPrefix(name, "verify")
		if _, excused := elsewhere()[name]; checks && run[name] == excused {
			t.Errorf("make %s: in .ci/run %v, excused %v", name, run[name], excused)
		}
	}
	if len(run) < 15 {
		t.Errorf(".ci/run makes %d targets: is its form another now?", len(run))
	}
}
