// Package gen lets rapid check properties inside Ginkgo specs.
package gen

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"
)

// Check runs prop on rapid's random cases inside an It; call it once per It.
// name names the directory of the fail files, testdata/rapid/<name>; cases that
// failed before are tried first. A failure is reported with its smallest case
// and a command that runs this spec on this case again. (The -run flag that
// rapid prints means nothing to Ginkgo.)
func Check(name string, prop func(*rapid.T)) {
	ginkgo.GinkgoHelper()
	spec := ginkgo.CurrentSpecReport()
	t := &reporter{name: name, command: command(packageDir(), spec.FullText())}
	rapid.Check(t, prop)
	if t.failed {
		t.FailNow()
	}
}

// command runs one spec of a package: its text, to the end, is the focus.
func command(dir, text string) string {
	return "go test " + dir + " -ginkgo.focus " + quote(regexp.QuoteMeta(text)+"$")
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// packageDir is the package under test, whose directory go test runs in, as an
// argument of go test in the module's root; "." if there is no module.
func packageDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				return "."
			}
			return "./" + filepath.ToSlash(rel)
		}
		if root == filepath.Dir(root) {
			return "."
		}
	}
}

// The parts of rapid's report that say how to reproduce a failure.
var (
	advice   = regexp.MustCompile(`specify -run="(?:[^"\\]|\\.)*"(.*)`)
	failFile = regexp.MustCompile(`-rapid\.failfile="((?:[^"\\]|\\.)*)"`)
	seed     = regexp.MustCompile(`-rapid\.seed=\d+`)
)

// withCommand replaces rapid's advice in its report by a command.
func withCommand(report, command string) string {
	m := advice.FindStringSubmatchIndex(report)
	if m == nil {
		return report
	}
	flags := report[m[2]:m[3]]
	flag := seed.FindString(flags)
	if f := failFile.FindStringSubmatch(flags); f != nil {
		flag = "-rapid.failfile=" + quote(f[1])
	}
	return report[:m[0]] + "run\n\n    " + strings.TrimSpace(command+" "+flag) + "\n" + report[m[1]:]
}

// reporter is the test that rapid reports to. Unlike Ginkgo's own, its Errorf
// returns, so that the values drawn can follow; FailNow ends the spec.
type reporter struct {
	name, command string
	lines         []string
	failed        bool
}

// Helper has nothing to mark.
func (r *reporter) Helper() {}

// Name names the directory of fail files.
func (r *reporter) Name() string { return r.name }

// Logf keeps a line of the report.
func (r *reporter) Logf(format string, args ...any) {
	r.lines = append(r.lines, withCommand(fmt.Sprintf(format, args...), r.command))
}

// Log keeps a line of the report.
func (r *reporter) Log(args ...any) { r.Logf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

// Errorf keeps a line and fails the spec when rapid is done.
func (r *reporter) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.failed = true
}

// Error keeps a line and fails the spec when rapid is done.
func (r *reporter) Error(args ...any) {
	r.Log(args...)
	r.failed = true
}

// Fatalf keeps a line and fails the spec.
func (r *reporter) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}

// Fatal keeps a line and fails the spec.
func (r *reporter) Fatal(args ...any) {
	r.Log(args...)
	r.FailNow()
}

// Fail marks the spec as failed.
func (r *reporter) Fail() { r.failed = true }

// FailNow fails the spec with all that was reported.
func (r *reporter) FailNow() {
	r.failed = true
	ginkgo.Fail(strings.Join(r.lines, "\n"), 1)
}

// Failed reports whether the property failed.
func (r *reporter) Failed() bool { return r.failed }

// Skipf skips the spec.
func (r *reporter) Skipf(format string, args ...any) { ginkgo.Skip(fmt.Sprintf(format, args...)) }

// Skip skips the spec.
func (r *reporter) Skip(args ...any) { ginkgo.Skip(fmt.Sprint(args...)) }

// SkipNow skips the spec.
func (r *reporter) SkipNow() { ginkgo.Skip("") }
