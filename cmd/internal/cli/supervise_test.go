//go:build unix

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workVariable says what the test binary does as a supervised command.
const workVariable = "CLI_TEST_WORK"

// TestMain lets the test binary stand in for a command, as its own process.
func TestMain(m *testing.M) {
	if work := os.Getenv(workVariable); work != "" {
		os.Exit(Supervise(func() int { return works(work) }))
	}
	os.Exit(m.Run())
}

func works(what string) int {
	ctx, stop := Context()
	defer stop()
	switch what {
	case "memory":
		runtime.KeepAlive(make([]byte, 1<<47)) // more than a process can have
	case "panic":
		go func() { panic("in the code under test") }()
		time.Sleep(time.Minute)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute)
	case "wait":
		fmt.Println(os.Getpid())
		<-ctx.Done()
		fmt.Println("interrupted once")
		time.Sleep(oneSignal / 2) // what a second signal would not let it finish
		fmt.Println("finished")
		return CannotRun
	case "limit":
		fmt.Println(Memory())
	default:
		code, _ := strconv.Atoi(what)
		return code
	}
	return OK
}

func working(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workVariable+"="+what)
	return cmd
}

// TestSupervise: codes pass through, and no end of the work looks like a usage
// error but a usage error.
func TestSupervise(t *testing.T) {
	for what, want := range map[string]struct {
		code   int
		stderr string
	}{
		"0": {OK, ""}, "1": {Violated, ""}, "2": {Usage, ""}, "3": {Inconclusive, ""}, "4": {CannotRun, ""},
		"memory": {CannotRun, "could not run: memory ran out or the program failed"},
		"panic":  {CannotRun, "could not run: memory ran out or the program failed"},
		"killed": {CannotRun, "could not run: killed, as the system does where memory runs out"},
	} {
		var stderr strings.Builder
		cmd := working(what)
		cmd.Stderr = &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want.code || !strings.Contains(stderr.String(), want.stderr) {
			t.Errorf("work %s: exit code %d, stderr %q: want %d and %q", what, got, stderr.String(), want.code, want.stderr)
		}
	}
}

// waiting starts work that waits, in a process group of its own, and gives its
// process ID.
func waiting(t *testing.T) (cmd *exec.Cmd, out *bufio.Reader, work int) {
	t.Helper()
	cmd = working("wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	out = bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if work, err = strconv.Atoi(strings.TrimSpace(line)); err != nil || work == cmd.Process.Pid {
		t.Fatalf("the work is process %q of %d: %v", line, cmd.Process.Pid, err)
	}
	return cmd, out, work
}

// TestSignalsReachTheWork, once: a terminal sends them to both processes, and the
// supervisor hands its own on.
func TestSignalsReachTheWork(t *testing.T) {
	cmd, out, work := waiting(t)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "interrupted once\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := syscall.Kill(work, syscall.SIGINT); err != nil { // as the terminal's own
		t.Fatal(err)
	}
	line, _ := out.ReadString('\n')
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != CannotRun || line != "finished\n" {
		t.Errorf("exit code %d, %q", code, line)
	}
}

func TestTheWorkEndsWithItsSupervisor(t *testing.T) {
	cmd, _, work := waiting(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		if gone(work) {
			return
		}
	}
	t.Errorf("process %d goes on", work)
}

// TestWorkWithoutItsSupervisor, which was killed before the work began: it is not done,
// and no other process does it.
func TestWorkWithoutItsSupervisor(t *testing.T) {
	cmd := working("0")
	cmd.Env = append(cmd.Env, supervisorVariable+"=1")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != CannotRun || !strings.Contains(string(out), "LOCKSTEP_SUPERVISOR=1: is not the process that started this one") {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// gone reports whether a process has ended, also where nobody asked for how.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

// TestMemoryKeepsToTheLimits of the shell.
func TestMemoryKeepsToTheLimits(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits are known on Linux only")
	}
	limited := func(flag string) int64 {
		cmd := exec.CommandContext(context.Background(), "sh", "-c", `ulimit `+flag+` 8000000 && exec "$0"`, os.Args[0])
		cmd.Env = append(os.Environ(), workVariable+"=limit", "GOMEMLIMIT=")
		out, err := cmd.Output()
		n, perr := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil || perr != nil {
			t.Fatalf("%v, %v: %q", err, perr, out)
		}
		return n
	}
	for _, flag := range []string{"-v", "-d"} {
		if n := limited(flag); n < 1<<30 || n > 8000000*1024/10*9 {
			t.Errorf("ulimit %s 8000000 (KiB): %d bytes", flag, n)
		}
	}
}

// TestAnAgentEndsWithItsDriver, whatever it is at: also where it has not reached it yet.
func TestAnAgentEndsWithItsDriver(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := working("wait")
	cmd.Env = append(cmd.Env, `LOCKSTEP_AGENT={"agent":0,"agents":1,"join":1,"silence":1}`)
	cmd.ExtraFiles = []*os.File{read}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != fmt.Sprintln(cmd.Process.Pid) {
		t.Fatalf("%q is the work of process %d: %v", line, cmd.Process.Pid, err)
	}
	read.Close()
	write.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Errorf("process %d goes on", cmd.Process.Pid)
	}
}
