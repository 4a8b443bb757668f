package data

import "testing"

// TestBytes: the text holds every byte, its hash is pinned, as cases are made for
// its length, and BuiltIn knows its name and no file's.
func TestBytes(t *testing.T) {
	x, ok := BuiltIn(BytesName)
	if !ok || x.Name != BytesName {
		t.Fatalf("no built-in text %q", BytesName)
	}
	seen := map[byte]bool{}
	for _, b := range x.Bytes {
		seen[b] = true
	}
	if len(seen) != 256 {
		t.Errorf("%d of 256 bytes", len(seen))
	}
	const want = "6e5f6945cac6cd46ee0f9e653eee07a61cdec001109fb1dc41234a7bd60233b7"
	if got := x.Hash(); got != want {
		t.Errorf("SHA-256 %s, want %s", got, want)
	}
	for _, name := range []string{"", "default"} {
		if d, ok := BuiltIn(name); !ok || d.Hash() != Default().Hash() {
			t.Errorf("%q is not the default text", name)
		}
	}
	if _, ok := BuiltIn("data.go"); ok {
		t.Error("a file is built in")
	}
}
