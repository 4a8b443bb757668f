package independent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/data"
)

// TestReadText: a file's bytes come as they are, whatever they are, and a
// beginning's are its first.
func TestReadText(t *testing.T) {
	dir := t.TempDir()
	later := time.Now().Add(time.Hour)
	for name, text := range map[string]string{
		"mark": "\xef\xbb\xbfa", "line ends": "a\r\nb\r\n\r\nc\n\x1a", "no text": "\x00\xff\xfe\n\n", "blanks": " a \n\n", "one": "x",
		"long": strings.Repeat("0123456789abcdef\r\n", 1<<13) + "end",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := independent.ReadText(path, later)
		if err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(text), err)
		}
		loaded, err := data.Load(path)
		if err != nil || string(loaded.Bytes) != text {
			t.Errorf("%s: data.Load gives %d bytes, want %d: %v", name, len(loaded.Bytes), len(text), err)
		}
		for _, n := range []int{1, len(text)/2 + 1, len(text)} {
			h := loaded.Head(n)
			got, err := independent.ReadText(path+"[:"+strconv.Itoa(n)+"]", later)
			if err != nil || string(got) != text[:n] || string(h.Bytes) != text[:n] {
				t.Errorf("%s: %d bytes of the first %d, data.Head gives %d: %v", name, len(got), n, len(h.Bytes), err)
			}
		}
		if _, err := independent.ReadText(path+"[:"+strconv.Itoa(len(text)+1)+"]", later); err == nil {
			t.Errorf("%s: more than there is", name)
		}
		if _, err := independent.ReadText(path, time.Unix(1, 0)); err == nil || !strings.Contains(err.Error(), "changed") {
			t.Errorf("%s, changed meanwhile: %v", name, err)
		}
	}
	one := filepath.Join(dir, "one")
	if err := os.WriteFile(one+"[:1]", []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := independent.ReadText(one+"[:1]", later); err == nil || !strings.Contains(err.Error(), "beginning of another") {
		t.Errorf("two things of one name: %v", err)
	}
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	if got, err := independent.ReadText(one+"[:1]", later); err != nil || string(got) != "y" {
		t.Errorf("a file whose name is like a beginning's: %q, %v", got, err)
	}
	for _, name := range []string{one, one + "[:2]"} {
		if _, err := independent.ReadText(name, later); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := independent.ReadText(dir, later); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
}

// TestHead: names are taken apart as package data takes them apart.
func TestHead(t *testing.T) {
	for _, name := range []string{"default[:5000]", "a[:1]", "a[:10][:2]", "[:1]", "a[:0]", "a[:01]", "a[:+1]", "a[:-1]", "a[:1] ", "a[1:2]", "a", "", "a[:]", "a\nb[:7]", "[:1][:2]",
		"a[:99999999999999999999]", "a[:1]b[:2]"} {
		whole, n, ok := independent.Head(name)
		w, m, is := data.Beginning(name)
		if ok != is || ok && (whole != w || n != m) {
			t.Errorf("%q: %q %d %t, package data says %q %d %t", name, whole, n, ok, w, m, is)
		}
	}
}
