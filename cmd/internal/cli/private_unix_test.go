//go:build unix

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// owned is a file of another user.
type owned struct {
	fs.FileInfo
	by uint32
}

func (o owned) Sys() any {
	s := *o.FileInfo.Sys().(*syscall.Stat_t)
	s.Uid = o.by
	return &s
}

// A secret is in a file of this process's user that nobody else can read.
func TestPrivate(t *testing.T) {
	path, me := filepath.Join(t.TempDir(), "token"), os.Getuid()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode fs.FileMode
		by   int
		want string
	}{
		{0o600, me, ""},
		{0o400, me, ""},
		{0o640, me, "has mode 0640"},
		{0o604, me, "has mode 0604"},
		{0o620, me, "has mode 0620"},
		{0o600, me + 1, fmt.Sprintf("is of user %d, and this process of user %d", me+1, me)},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := private(owned{info, uint32(c.by)}); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("mode %#o of user %d: %v, want %q", c.mode, c.by, err, c.want)
		}
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || private(info) == nil {
		t.Errorf("a directory: %v", err)
	}
}
