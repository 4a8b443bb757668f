package names

import "testing"

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"":                      "",
		"model.layers.2[5] – ü": "model.layers.2[5] – ü",
		`a\b "c"`:               `a\b "c"`,
		"\x1b[31mred\x00":       `\x1b[31mred\x00`,
		"a\nb\tc\r\x7f":         `a\nb\tc\r\x7f`,
		"\u202eright\u009bleft": `\u202eright\u009bleft`,
		"no \xff text \ufffd":   "no \\xff text \ufffd",
		"no-break\u00a0space":   `no-break\u00a0space`,
	} {
		if got := Printable(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}
