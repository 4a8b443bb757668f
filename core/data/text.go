package data

import (
	"crypto/sha256"
	_ "embed" // for the default text
	"encoding/hex"
	"fmt"
	"io"
	"os"
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

// Load reads a regular, non-empty file of at most 1 GiB; the name of the text
// is the path, so that a recorded run finds it again. Errors name the path and what it breaks.
func Load(path string) (Text, error) {
	fail := func(err error) (Text, error) { return Text{}, fmt.Errorf("training text %q: %w", path, err) }
	// Stat first: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return fail(err)
	}
	switch size := info.Size(); {
	case info.IsDir():
		return fail(fmt.Errorf("is a directory: must be a regular file"))
	case !info.Mode().IsRegular():
		return fail(fmt.Errorf("has mode %s: must be a regular file", info.Mode()))
	case size == 0:
		return fail(fmt.Errorf("is empty: must hold at least one byte"))
	case size > maxText:
		return fail(fmt.Errorf("has %d bytes: must have at most %d", size, maxText))
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText+1)) // it may grow meanwhile
	if err != nil {
		return fail(err)
	}
	if len(b) == 0 || len(b) > maxText {
		return fail(fmt.Errorf("changed to %d bytes while it was read", len(b)))
	}
	return Text{Name: path, Bytes: b}, nil
}
