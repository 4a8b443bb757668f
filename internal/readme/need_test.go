//go:build unix

package readme

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// need is something that .ci/need knows: by which commands it is there, what packages bring
// it, and how a machine is called that needs none.
type need struct {
	commands, packages string
	without            string // setting of the stand-in for go
}

func needs() map[string]need {
	return map[string]need{
		"gcc":          {"gcc", "gcc libc6-dev", ""},
		"g++":          {"g++", "g++", ""},
		"clang-19":     {"clang-19", "clang-19", ""},
		"shellcheck":   {"shellcheck", "shellcheck", ""},
		"python3-venv": {"python3", "python3 python3-venv", ""},
		"emulator":     {"qemu-aarch64", "qemu-user", "GO_ARCH=arm64"},
		"launchers":    {"mpirun srun slurmd slurmctld munged ip unshare", "openmpi-bin slurm-client slurmd slurmctld munge iproute2 util-linux", ""},
		"mpi":          {"mpicc", "openmpi-bin libopenmpi-dev", ""},
	}
}

// TestNeedsAreUsed: what .ci/need knows is asked for somewhere, and nothing else is.
func TestNeedsAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, name := range []string{".ci/run", ".github/workflows/ci.yml", "Makefile"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:step |\t@|.*run: )\.ci/need ([^#&|;\n]+)`).FindAllSubmatch(text, -1) {
			for _, word := range strings.Fields(string(m[1])) {
				used[word] = true
			}
		}
	}
	known := slices.Sorted(maps.Keys(needs()))
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, known) {
		t.Errorf("asked for are %q, known %q", got, known)
	}
	h := newHost(t)
	code, said := h.need(nil, "gcc", "gfortran", "mpi")
	names, ok := strings.CutPrefix(strings.TrimSpace(said), ".ci/need gfortran: known are ")
	if got := slices.Sorted(slices.Values(strings.Fields(names))); code != 2 || !ok || !slices.Equal(got, known) || h.calls(t) != "" {
		t.Errorf("one that it does not know: %d, %q; it called %q", code, said, h.calls(t))
	}
}

// host is a machine on which nothing is but what a test puts there: a directory of commands.
type host struct{ bin string }

// The stand-ins. apt-get says what it was asked for, fails where that is wanted, and brings
// commands that run without doing anything.
const (
	aptGet = `#!/bin/sh
echo "$* DEBIAN_FRONTEND=$DEBIAN_FRONTEND" >> "$BIN/../calls"
for word; do [ "$word" = "$APT_FAILS" ] && exit 100; done
case " $* " in *" install "*) for c in $BRINGS; do printf '#!/bin/sh\nwhile read -r _; do :; done\n' > "$BIN/$c"; chmod +x "$BIN/$c"; done ;; esac
exit 0
`
	goEnv   = "#!/bin/sh\ncase $2 in CC) echo gcc ;; GOHOSTARCH) echo \"${GO_ARCH-amd64}\" ;; esac\n"
	id      = "#!/bin/sh\necho \"${ID-0}\"\n"
	asOther = "#!/bin/sh\necho sudo >> \"$BIN/../calls\"\nexec \"$@\"\n"
)

func newHost(t *testing.T) host {
	t.Helper()
	h := host{filepath.Join(t.TempDir(), "bin")}
	if err := os.Mkdir(h.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	h.puts(t, map[string]string{"apt-get": aptGet, "go": goEnv, "id": id})
	for _, name := range []string{"env", "bash", "chmod"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(h.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// puts adds commands.
func (h host) puts(t *testing.T, commands map[string]string) {
	t.Helper()
	for name, text := range commands {
		if err := os.WriteFile(filepath.Join(h.bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// calls is what apt-get was asked for, and whether by another user.
func (h host) calls(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.bin, "../calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// need runs .ci/need.
func (h host) need(env []string, args ...string) (code int, said string) {
	const script = "../../.ci/need"
	if _, err := os.Stat(script); err != nil { // so that go test knows what its result depends on
		return -1, err.Error()
	}
	cmd := exec.Command(script, args...)
	cmd.Env = append([]string{"PATH=" + h.bin, "BIN=" + h.bin}, env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

// install is what apt-get is asked for, where packages are wanted.
func install(packages string) string {
	return "-o Acquire::Retries=3 update -q DEBIAN_FRONTEND=\n-o Acquire::Retries=3 install -y -q --no-install-recommends " + packages + " DEBIAN_FRONTEND=noninteractive\n"
}

// wanted is a machine that has some commands, and what must come of asking for a need there.
type wanted struct {
	name     string
	has, env []string
	code     int
	calls    string // of apt-get
	says     string
}

// TestNeed: what is there is not installed; what is not, even in part, is, by the packages
// that bring it; and what cannot be installed, or is not there after all, is a failure.
func TestNeed(t *testing.T) {
	const there = "#!/bin/sh\nwhile read -r _; do :; done\n"
	for name, n := range needs() {
		commands := strings.Fields(n.commands)
		brings := "BRINGS=" + n.commands
		trials := []wanted{
			{"there", commands, nil, 0, "", ""},
			{"not there", nil, []string{brings}, 0, install(n.packages), ""},
			{"no index", nil, []string{brings, "APT_FAILS=update"}, 100, strings.SplitAfter(install(n.packages), "\n")[0], ""},
			{"not installed", nil, []string{brings, "APT_FAILS=install"}, 100, install(n.packages), ""},
			{"installed in vain", nil, nil, 1, install(n.packages), name + ": installed, and still not found"},
			{"of nobody", nil, []string{"ID=1000"}, 1, "", "these are missing, by the names of their Debian packages: " + n.packages},
		}
		if n.without != "" {
			trials = append(trials, wanted{"needed by none", nil, []string{n.without}, 0, "", ""})
		}
		for i, command := range commands {
			trials = append(trials, wanted{"without " + command, slices.Delete(slices.Clone(commands), i, i+1), []string{brings}, 0, install(n.packages), ""})
		}
		for _, c := range trials {
			h := newHost(t)
			for _, command := range c.has {
				h.puts(t, map[string]string{command: there})
			}
			code, said := h.need(c.env, name)
			if code != c.code || !strings.HasPrefix(said, c.says) || c.says == "" && said != "" || h.calls(t) != c.calls {
				t.Errorf("%s, %s: %d, %q, and it called\n%swant %d, %q and\n%s", name, c.name, code, said, h.calls(t), c.code, c.says, c.calls)
			}
		}
	}
	h := newHost(t)
	h.puts(t, map[string]string{"g++": there, "sudo": asOther})
	if code, said := h.need([]string{"ID=1000", "BRINGS=gcc shellcheck"}, "gcc", "g++", "shellcheck"); code != 0 || said != "" || h.calls(t) != strings.ReplaceAll(install("gcc libc6-dev shellcheck"), "-o", "sudo\n-o") {
		t.Errorf("two of three, by sudo: %d, %q, %q", code, said, h.calls(t))
	}
	if err := os.Remove(filepath.Join(h.bin, "apt-get")); err != nil {
		t.Fatal(err)
	}
	if code, said := h.need(nil, "mpi"); code != 1 || said != "these are missing, by the names of their Debian packages: openmpi-bin libopenmpi-dev\n" {
		t.Errorf("on another system: %d, %q", code, said)
	}
}
