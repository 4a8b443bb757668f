package contracts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	data "github.com/lockstep-ml/lockstep/contracts/data/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	corpus "github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// fileText is a text of all bytes with a byte order mark, in a file that is older
// than the test.
func fileText(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	text := append([]byte("\xef\xbb\xbf"), corpus.Bytes().Bytes...)
	for len(text) < 70<<10 { // more than a buffer
		text = append(text, fmt.Sprintf("%d\r\n\r\n%s", len(text), corpus.Bytes().Bytes)...)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

// dataOf judges C-DATA-001.3 on one case over a text.
func dataOf(t *testing.T, text corpus.Text, load func(string) (corpus.Text, error)) (contract.Verdict, string) {
	t.Helper()
	o := options()
	o.Text, o.Texts, o.Case = text, load, "nano dp=2"
	o.Parts.Backend = func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }
	r, err := Verify(t.Context(), []*suite.Suite{data.Suite()}, o)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Contracts[0].Clauses[2]
	return c.Verdict, fmt.Sprint(c.Findings, c.Doubts)
}

// TestTextsAreReadAgain: whoever gives runs another text than the file has, is
// found out, also where every run and control has the same.
func TestTextsAreReadAgain(t *testing.T) {
	path := fileText(t)
	head := path + "[:5000]"
	for name, change := range map[string]func([]byte) []byte{
		"as it is":  nil,
		"last byte": func(x []byte) []byte { return x[:len(x)-1] }, "first byte": func(x []byte) []byte { return x[1:] },
		"a byte within": func(x []byte) []byte { return append(x[:1000:1000], x[1001:]...) }, "a byte more": func(x []byte) []byte { return append(x[:len(x):len(x)], '\n') },
		"mark": func(x []byte) []byte { return x[3:] }, "buffer": func(x []byte) []byte { return x[:min(len(x)-1, 1<<16)] },
		"line ends": func(x []byte) []byte { return []byte(strings.ReplaceAll(string(x), "\r\n", "\n")) },
		"UTF-8":     func(x []byte) []byte { return []byte(strings.ToValidUTF8(string(x), "\ufffd")) },
		"a bit":     func(x []byte) []byte { y := append([]byte(nil), x...); y[2000] ^= 1; return y },
	} {
		for _, of := range []string{path, head} {
			load := func(name string) (corpus.Text, error) {
				open := corpus.Load
				if name == head {
					open = func(string) (corpus.Text, error) { return corpus.Part(head, corpus.Load) }
				}
				text, err := open(name)
				if change != nil {
					text.Bytes = change(text.Bytes)
				}
				return text, err
			}
			text, err := load(of)
			if err != nil {
				t.Fatal(err)
			}
			want := contract.Violated
			if change == nil {
				want = contract.Held
			}
			if got, says := dataOf(t, text, load); got != want || want == contract.Violated && !strings.Contains(says, "other bytes than text "+of) {
				t.Errorf("%s of %s: %s %s, want %s", name, filepath.Base(of), got, says, want)
			}
		}
	}
}

// TestTextsThatChange: a file that became another while it was in use says nothing
// of what runs were given.
func TestTextsThatChange(t *testing.T) {
	path := fileText(t)
	text, err := corpus.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.WriteFile(path, []byte("another text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if got, says := dataOf(t, text, nil); got != contract.Inconclusive || !strings.Contains(says, "was changed at") {
		t.Errorf("%s: %s", got, says)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, says := dataOf(t, text, nil); got != contract.Held {
		t.Errorf("a text that is no file: %s: %s", got, says)
	}
	if err := os.WriteFile(path, text.Bytes, 0o644); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Text = text
	read := o.again()
	for name, want := range map[string][]byte{"bytes": corpus.Bytes().Bytes, "bytes[:500]": corpus.Bytes().Bytes[:500], "default[:7]": corpus.Default().Bytes[:7]} {
		if got, err := read(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	if _, err := read("bytes[:5000]"); err == nil {
		t.Error("more of a built-in text than there is")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path); err == nil {
		t.Error("a file that is gone is read as what was given")
	}
}
