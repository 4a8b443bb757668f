package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule is what a line of PTX that ships must not hold.
type rule struct {
	what    string
	pattern *regexp.Regexp
}

// rules are all of them.
func rules() []rule {
	return []rule{
		{"may be fused by an assembler", regexp.MustCompile(`\b(add|sub|mul|mad)\.(ftz\.|sat\.)*f(32|64)\b`)},
		{"flushes subnormals", regexp.MustCompile(`\.ftz\b`)},
		{"is not rounded as IEEE 754 asks", regexp.MustCompile(`\.(approx|full|rz|rm|rp)\.(ftz\.)?f(32|64)\b`)},
		{"is a function that is not there", regexp.MustCompile(`\.extern\s+\.func\b`)},
		{"calls a function, which simulators do not run", regexp.MustCompile(`\bcall\b`)},
		{"computes in double precision, which no kernel does", regexp.MustCompile(`\b(add|sub|mul|fma|div|sqrt)(\.\w+)*\.f64\b`)},
	}
}

// violations lists the lines of PTX that break a rule of what ships.
func violations(text string) (found []string) {
	all := rules()
	for i, line := range strings.Split(text, "\n") {
		code, _, _ := strings.Cut(line, "//")
		for _, r := range all {
			if r.pattern.MatchString(code) {
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
