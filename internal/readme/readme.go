// Package readme finds in a document what it promises: the commands that it tells
// people to type. Its test types them.
package readme

import (
	"regexp"
	"strings"
)

// Commands lists the commands of a Markdown document that stand in backquotes
// within tables and begin with bin/, start such a one, or read its output, in order.
func Commands(markdown string) (out []string) {
	quoted := regexp.MustCompile("`[^`]*`")
	for line := range strings.Lines(markdown) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, q := range quoted.FindAllString(line, -1) {
			if c := strings.Trim(q, "`"); strings.HasPrefix(c, "bin/") || strings.Contains(c, "<(bin/") || strings.Contains(c, " bin/") {
				out = append(out, c)
			}
		}
	}
	return out
}
