package trace

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// unbounded is room for any history.
func unbounded() *int64 {
	room := int64(math.MaxInt64)
	return &room
}

func TestReadBoundsMemory(t *testing.T) {
	if size := reflect.TypeFor[Event]().Size(); size > eventBytes || size < eventBytes/2 {
		t.Errorf("an event takes %d bytes, eventBytes is %d", size, eventBytes)
	}
	const skip = `{"kind":"skip","rank":0,"text":"x"}`
	text := header + strings.Repeat(skip+"\n", 10)
	room := int64(10 * (2*eventBytes + len(skip)))
	if _, err := read(strings.NewReader(text), "f", 4096, &room); err != nil || room != 0 {
		t.Errorf("what just fits: %v, %d bytes left", err, room)
	}
	room = 9 * (2*eventBytes + 40)
	if _, err := read(strings.NewReader(text), "f", 4096, &room); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "f:11: ") {
		t.Errorf("an event too many: %v", err)
	}
}

// save writes a history of one rank below dir.
func save(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	one := strings.Replace(header, `"world":2`, `"world":1`, 1)
	if err := os.WriteFile(filepath.Join(dir, "0000"+Extension), []byte(one), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLoadFollowsLinks: to directories, DIR itself and files; what two lead to is
// one run.
func TestLoadFollowsLinks(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	save(t, filepath.Join(away, "run"))
	save(t, filepath.Join(dir, "here"))
	for link, to := range map[string]string{"linked": filepath.Join(away, "run"), "again": filepath.Join(away, "run"), "up": dir} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dir, filepath.Join(dir, "up")} {
		if hs, err := Load(name); err != nil || len(hs) != 2 {
			t.Errorf("%s: %d histories, %v; want 2", name, len(hs), err)
		}
	}
	if err := os.Symlink(filepath.Join(away, "gone"), filepath.Join(dir, "lost")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

func TestLoadTakesRegularFiles(t *testing.T) {
	dir := t.TempDir()
	save(t, dir)
	path := filepath.Join(dir, "0001"+Extension)
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), path+": is a device: must be a regular file") {
		t.Errorf("a device among histories: %v", err)
	}
}
