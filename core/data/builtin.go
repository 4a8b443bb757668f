package data

// BytesName is the name of Bytes.
const BytesName = "bytes"

// BuiltIn is the text of a name that comes with the program: "default", also
// for the empty name, and "bytes".
func BuiltIn(name string) (Text, bool) {
	switch name {
	case "", "default":
		return Default(), true
	case BytesName:
		return Bytes(), true
	}
	return Text{}, false
}

// Bytes is a short text that holds every byte: several scripts in UTF-8, line
// ends of every kind, paragraphs of one byte and more, and runs of bytes that are
// no text at all. English prose has no byte from 128 up.
func Bytes() Text {
	b := []byte("Größe, naïve façade: 25 °C\n\n" +
		"Обратный проход\r\n\r\n" +
		"並列計算は同じ答えを出す。\n\n\n" +
		"x\n\n" + // offers no prediction
		"→ ½ ≠ ⅓\n \n" + // a blank that is no empty line
		"\r\n\r\n")
	for i := range 256 {
		b = append(b, byte(i))
	}
	b = append(b, "\n\n"...)
	for x := uint32(1); len(b) < 800; x = x*1664525 + 1013904223 { // no order
		b = append(b, byte(x>>24))
	}
	return Text{Name: BytesName, Bytes: b}
}
