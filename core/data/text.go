package data

import (
	"crypto/sha256"
	_ "embed" // for the default text
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/files"
)

//go:embed text/default.txt
var defaultText string

// maxText bounds what Load reads, in bytes.
const maxText = 1 << 30

// Text is a training text; its bytes are its tokens.
type Text struct {
	// Name is for messages and reports; it does not enter results.
	Name  string
	Bytes []byte
}

// Default is the frozen English text that comes with the program. The golden
// runs train on it, so its bytes never change.
func Default() Text { return Text{Name: "default", Bytes: []byte(defaultText)} }

// Hash is the SHA-256 of the bytes, in hexadecimal.
func (t Text) Hash() string {
	h := sha256.Sum256(t.Bytes)
	return hex.EncodeToString(h[:])
}

// Head is the beginning of a text, of at most n bytes, with a name that Beginning
// takes apart: "default[:5000]".
func (t Text) Head(n int) Text {
	if n >= len(t.Bytes) {
		return t
	}
	n = max(n, 0)
	return Text{Name: fmt.Sprintf("%s[:%d]", t.Name, n), Bytes: t.Bytes[:n:n]}
}

// Beginning takes the name of the beginning of a text apart: the name of the whole
// text and how many of its bytes there are; ok is false for other names.
func Beginning(name string) (whole string, n int, ok bool) {
	i := strings.LastIndex(name, "[:")
	if i <= 0 || !strings.HasSuffix(name, "]") {
		return "", 0, false
	}
	digits := name[i+2 : len(name)-1]
	n, err := strconv.Atoi(digits)
	return name[:i], n, err == nil && n > 0 && strconv.Itoa(n) == digits
}

// Part opens the text of a name that Beginning takes apart, given how whole texts
// are opened. It refuses a whole that is shorter.
func Part(name string, open func(name string) (Text, error)) (Text, error) {
	whole, n, _ := Beginning(name)
	t, err := open(whole)
	if err == nil && len(t.Bytes) < n {
		err = fmt.Errorf("training text %q: the whole has %d bytes: must have at least %d", name, len(t.Bytes), n)
	}
	if err != nil {
		return Text{}, err
	}
	return Text{Name: name, Bytes: t.Bytes[:n:n]}, nil
}

// Load reads a regular, non-empty file of at most 1 GiB; the name of the text
// is the path, so that a recorded run finds it again. Errors name the path and what it breaks.
func Load(path string) (Text, error) {
	b, err := files.Read(path, maxText)
	if err != nil {
		return Text{}, fmt.Errorf("training text %q: %w", path, err)
	}
	return Text{Name: path, Bytes: b}, nil
}

// Read reads a text to the end of a stream. It refuses one that is empty or has
// more than a GiB, before it holds more than that.
func Read(name string, r io.Reader) (Text, error) { return read(name, r, maxText) }

// blockBytes is how much of a stream is read at a time.
const blockBytes = 1 << 20

// read keeps what comes in blocks: one buffer that grows would be there twice again
// and again.
func read(name string, r io.Reader, limit int) (Text, error) {
	var blocks [][]byte
	for size := 0; ; {
		b := make([]byte, min(blockBytes, limit-size+1))
		n, err := io.ReadFull(r, b)
		size += n
		blocks = append(blocks, b[:n])
		switch {
		case size > limit:
			return Text{}, fmt.Errorf("text %q: has no end within %d bytes: must have at most that many", name, limit)
		case err == nil:
			continue
		case err != io.EOF && err != io.ErrUnexpectedEOF:
			return Text{}, fmt.Errorf("text %q: %w", name, err)
		case size == 0:
			return Text{}, fmt.Errorf("text %q: is empty", name)
		}
		return Text{Name: name, Bytes: slices.Concat(blocks...)}, nil
	}
}
