package names

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is s with every character escaped that does not show, or that may
// change how others show: control characters, those that turn the direction of
// writing, bytes that are no text. Names come from files, and a terminal obeys
// what it is sent.
func Printable(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if hidden(r) || r == utf8.RuneError && n == 1 {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }
