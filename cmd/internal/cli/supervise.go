//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// supervisorVariable tells a process that it is the work of the one with this ID.
const supervisorVariable = "LOCKSTEP_SUPERVISOR"

// usageOfWork is the exit code of a usage error between work and supervisor: Go's
// runtime ends a process with 2 where memory ran out, a panic was not recovered or
// the program is broken, and that must not look like one.
const usageOfWork = 64

// Supervise runs a command's work in a process of its own and gives its exit code.
// A process cannot say how it ended when it ran out of memory or was killed; its
// parent can: CannotRun. Where no process can be started the work is done here.
func Supervise(work func() int) int {
	switch parent := os.Getenv(supervisorVariable); {
	case parent == strconv.Itoa(os.Getppid()):
		return supervised(work)
	case parent != "": // it was killed before this process looked: nobody wants the work any more
		fmt.Fprintf(os.Stderr, "%s: could not run: %s=%s: is not the process that started this one\n", filepath.Base(os.Args[0]), supervisorVariable, parent)
		return CannotRun
	case isAgent(): // its driver says how it ended
		err := procs.EndWithParent(func() {
			procs.Bereft()
			endNow()
		})
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: could not run: %v\n", filepath.Base(os.Args[0]), err)
			return CannotRun
		}
		return work()
	}
	read, write, err := os.Pipe()
	if err != nil {
		return work()
	}
	defer write.Close() // not before the work has ended, and then by the system at the latest
	cmd := exec.Command(procs.Executable(), os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), supervisorVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{read}
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	err = cmd.Start()
	read.Close()
	if err != nil {
		signal.Reset()
		return work()
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	return outcome(cmd.Wait(), filepath.Base(os.Args[0]), os.Stderr)
}

// supervised does the work of a supervisor, and ends when that is gone.
func supervised(work func() int) int {
	_ = os.Unsetenv(supervisorVariable)
	_ = procs.EndWithParent(endNow) // a supervisor gives the pipe
	if code := work(); code != Usage {
		return code
	}
	return usageOfWork
}

// endNow ends this process at once.
func endNow() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// outcome is the exit code that the end of the work means; what the work could not
// say itself is said here.
func outcome(err error, name string, stderr io.Writer) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return OK
	case !errors.As(err, &exit):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return CannotRun
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	switch code := exit.ExitCode(); {
	case code == usageOfWork:
		return Usage
	case code == Violated || code == Inconclusive || code == CannotRun:
		return code
	case status.Signaled() && status.Signal() == syscall.SIGPIPE: // whoever read it wanted no more
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		fmt.Fprintf(stderr, "%s: could not run: killed, as the system does where memory runs out\n", name)
	case status.Signaled():
		fmt.Fprintf(stderr, "%s: could not run: ended by signal %v\n", name, status.Signal())
	default:
		fmt.Fprintf(stderr, "%s: could not run: memory ran out or the program failed; the lines above say where (exit status %d of the Go runtime)\n", name, code)
	}
	return CannotRun
}
