package launchers

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// example is one of the files and what must be known to try it on one host.
type example struct {
	file   string
	args   []string
	env    []string
	agents int
	usage  int // exit code of a contract that there is not
}

func examples(t *testing.T) []example {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a secret of these tests alone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []example{
		{"verify.sbatch", nil, []string{"SLURM_NTASKS=3", "SLURM_JOB_ID=7"}, 3, 2},
		{"mpirun.sh", []string{"localhost:2,localhost:1"}, []string{"PORT=" + port(t)}, 3, 2},
		{"torchrun.sh", nil, []string{"NODES=1", "AGENTS=3", "FIRST=localhost", "TOKEN_FILE=" + token, "PORT=" + port(t)}, 3, 1},
	}
}

// port is one that nobody uses now.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// built is the program that the examples start.
func built(t *testing.T) string {
	t.Helper()
	verify := filepath.Join(t.TempDir(), "verify")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", verify, "../../cmd/verify").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return verify
}

// start is the exit code and the output of an example under its stand-in launcher.
func (x example) start(t *testing.T, verify string, args ...string) (int, string) {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range launchers() {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", append(append([]string{x.file}, x.args...), args...)...)
	cmd.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "VERIFY="+verify), x.env...)
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return failed.ExitCode(), string(out)
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// TestExamples starts each script: its agents are one run, and its exit code is
// theirs.
func TestExamples(t *testing.T) {
	verify := built(t)
	for _, x := range examples(t) {
		t.Run(x.file, func(t *testing.T) {
			code, out := x.start(t, verify, "--contract", "C-TP-001", "--deadline", "60s")
			if want := "processes, " + strconv.Itoa(x.agents) + " agents"; code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "held: 1 contract") {
				t.Errorf("exit code %d, want 0, %q and what is held:\n%s", code, want, out)
			}
			if code, out := x.start(t, verify, "--contract", "C-NONE-001"); code != x.usage {
				t.Errorf("a contract that there is not: exit code %d, want %d:\n%s", code, x.usage, out)
			}
		})
	}
}

// TestWhatIsMissing: a script that lacks what it needs says so and starts nothing.
func TestWhatIsMissing(t *testing.T) {
	for _, x := range []struct {
		example
		says string
	}{
		{example{file: "mpirun.sh"}, "usage:"},
		{example{file: "mpirun.sh", args: []string{"--level", "2"}}, "usage:"},
		{example{file: "mpirun.sh", args: []string{"node1"}}, "node1: must be HOST:SLOTS"},
		{example{file: "mpirun.sh", args: []string{"node1:2,node2:none"}}, "node2:none: must be HOST:SLOTS"},
		{example{file: "torchrun.sh"}, "how many nodes"},
		{example{file: "torchrun.sh", env: []string{"NODES=2", "AGENTS=4", "FIRST=node1"}}, "file with a secret"},
		{example{file: "verify.sbatch"}, "SLURM_NTASKS"},
	} {
		if code, out := x.start(t, "/nowhere/verify"); code == 0 || code == odd || !strings.Contains(out, x.says) {
			t.Errorf("%s %q: exit code %d, want one and %q:\n%s", x.file, x.args, code, x.says, out)
		}
	}
}

// TestFlags: verify has every flag that a file here gives it.
func TestFlags(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), built(t), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+)`).FindAllSubmatch(help, -1) {
		known[string(f[1])] = true
	}
	for file, least := range map[string]int{"verify.sbatch": 1, "mpirun.sh": 2, "torchrun.sh": 2, "kubernetes/verify.yaml": 3, "README.md": 5} {
		given := flagsIn(t, file)
		if len(given) < least {
			t.Errorf("%s gives verify the flags %v: at least %d", file, given, least)
		}
		for _, f := range given {
			if !known[f] {
				t.Errorf("%s: verify has no flag --%s", file, f)
			}
		}
	}
}

// flagsIn are the flags that a file gives to verify: those that follow the program in
// a command, or stand in the list of a container's arguments.
func flagsIn(t *testing.T, file string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`--([a-z-]+)`)
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		_, given, command := strings.Cut(line, "bin/verify")
		if !command && strings.HasPrefix(strings.TrimSpace(line), "- --") {
			given = line
		}
		for _, f := range name.FindAllStringSubmatch(given, -1) {
			out = append(out, f[1])
		}
	}
	return out
}
