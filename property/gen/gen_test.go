package gen

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A failing spec prints a command. In a fresh copy of the fail files only, the
// command runs that spec alone and meets the same smallest case at once.
func TestPrintedCommandReproduces(t *testing.T) {
	t.Cleanup(func() { os.RemoveAll(filepath.Join("testdata", "failing", "testdata")) })
	// Read here too, so that the go command runs the test again when it changes.
	if _, err := os.ReadFile(filepath.Join("testdata", "failing", "failing_test.go")); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "./testdata/failing").CombinedOutput()
	if err == nil {
		t.Fatalf("the failing suite passes:\n%s", out)
	}
	first := string(out)
	for _, want := range []string{"1234 is not small", "draw n: 1234", "2 Failed"} {
		if !strings.Contains(first, want) {
			t.Fatalf("the report lacks %q:\n%s", want, first)
		}
	}
	lines := regexp.MustCompile(`(?m)^ +(go test \./property/gen/testdata/failing .*failfile=.*small.*)$`).FindStringSubmatch(first)
	if lines == nil {
		t.Fatalf("no command in the report:\n%s", first)
	}
	again := exec.Command("sh", "-c", lines[1])
	again.Dir = filepath.Join("..", "..")
	out, err = again.CombinedOutput()
	if err == nil {
		t.Fatalf("%s passes:\n%s", lines[1], out)
	}
	second := string(out)
	for _, want := range []string{"failed after 0 tests: 1234 is not small", "Ran 1 of 2 Specs"} {
		if !strings.Contains(second, want) {
			t.Errorf("%s: the report lacks %q:\n%s", lines[1], want, second)
		}
	}
}

func TestWithCommand(t *testing.T) {
	for _, c := range []struct{ report, want string }{
		{"nothing to replace", "nothing to replace"},
		{
			"[rapid] failed after 3 tests: x\nTo reproduce, specify -run=\"a \\\"b\\\\.\" -rapid.failfile=\"testdata/x.fail\" (or -rapid.seed=5)\nFailed test output:",
			"[rapid] failed after 3 tests: x\nTo reproduce, run\n\n    CMD -rapid.failfile='testdata/x.fail'\n\nFailed test output:",
		},
		{
			"To try to reproduce, specify -run=\"a\" -rapid.seed=5\nTraceback",
			"To try to reproduce, run\n\n    CMD -rapid.seed=5\n\nTraceback",
		},
	} {
		if got := withCommand(c.report, "CMD"); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "it's $HOME `x` \"y\" \\z"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("the shell reads %s as %q (%v), want %q", quote(s), out, err, s)
		}
	}
}
