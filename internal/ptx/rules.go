package main

import (
	"fmt"
	"regexp"
	"strings"
)

// violations lists the lines of PTX that break a rule of what ships.
func violations(text string) (found []string) {
	rules := []struct{ what, pattern string }{
		{"may be fused by an assembler", `\b(add|sub|mul|mad)\.(ftz\.|sat\.)*f(32|64)\b`},
		{"flushes subnormals", `\.ftz\b`},
		{"is not rounded as IEEE 754 asks", `\.(approx|full|rz|rm|rp)\.(ftz\.)?f(32|64)\b`},
		{"is a function that is not there", `\.extern\s+\.func\b`},
		{"calls a function, which simulators do not run", `\bcall\b`},
		{"computes in double precision, which no kernel does", `\b(add|sub|mul|fma|div|sqrt)(\.\w+)*\.f64\b`},
	}
	for i, line := range strings.Split(text, "\n") {
		code, _, _ := strings.Cut(line, "//")
		for _, r := range rules {
			if regexp.MustCompile(r.pattern).MatchString(code) {
				found = append(found, fmt.Sprintf("line %d: %s: %s", i+1, strings.TrimSpace(code), r.what))
			}
		}
	}
	for _, want := range []string{"\n.version 8.0\n", "\n.target sm_80\n"} {
		if !strings.Contains(text, want) {
			found = append(found, fmt.Sprintf("it has no line %q", strings.TrimSpace(want)))
		}
	}
	return found
}
