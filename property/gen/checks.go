package gen

import (
	"flag"
	"testing"
)

// Checks sets how many cases a suite's properties try by default; a
// -rapid.checks on the command line wins. Call it before the specs run.
func Checks(t *testing.T, n string) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	if err := flag.Set("rapid.checks", n); err != nil {
		t.Fatal(err)
	}
}
