// Package cli is what the commands share: exit codes, usage errors, how
// backends and texts are opened by name, and how a command runs under signals.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

// The exit codes of every command.
const (
	OK           = 0 // held; done
	Violated     = 1
	Usage        = 2 // a flag, or a file that cannot be read
	Inconclusive = 3 // evidence missing, or something required was skipped
	CannotRun    = 4 // launch, memory, deadline, code under test, a file that cannot be written, interrupted
)

// ExitCodes is the part of a help text that explains them.
const ExitCodes = `Exit codes:
  0  held (or done)
  1  violated
  2  usage: a flag is wrong or a file cannot be read; nothing was run
  3  inconclusive: evidence is missing; never a pass
  4  could not run: no start, no memory, a deadline passed, the code under test
     failed, a file or stdout could not be written, or interrupted
Where several apply: 2 before anything runs, then 1, then 4, then 3. The work is
done in a process of its own, so that its death, by lack of memory or a signal,
is 4 too. One thing no program can help: where a process may map less than about
1.3 GB (ulimit -v 1200000), or 1.7 GB in a build with CUDA, Go's runtime may end
before this program begins, with 2 and a line on stderr that starts with
"runtime" or "fatal error".`

// UsageError is a mistake in flags or in the files they name.
type UsageError struct{ Err error }

// Error is the cause's message.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// AsUsage marks err, unless nil, as a UsageError.
func AsUsage(err error) error {
	if err == nil {
		return nil
	}
	return &UsageError{err}
}

// Execute runs cmd with args. The command's RunE stores its exit code in code;
// an error is printed to stderr and becomes Usage or CannotRun.
func Execute(ctx context.Context, cmd *cobra.Command, args []string, stdout, stderr io.Writer, code *int) int {
	if args == nil {
		args = []string{} // cobra would take os.Args
	}
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SilenceErrors = true
	cmd.SilenceUsage = true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usagef("%q: unexpected argument; everything is given by flags", args[0])
		}
		return nil
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return AsUsage(plain(err)) })
	ran := false
	inner := cmd.RunE
	cmd.RunE = func(c *cobra.Command, args []string) error {
		ran = true
		return inner(c, args)
	}
	err := guard.Do(func() error { return cmd.ExecuteContext(ctx) }) // Go's own exit code after a panic is that of usage
	if err == nil {
		return *code
	}
	Tell(stderr, cmd.Name(), err)
	var usage *UsageError
	if errors.As(err, &usage) || !ran && !lost(stdout) { // before RunE only flags can be wrong, and what help and version print be lost
		fmt.Fprintf(stderr, "%s --help shows the flags.\n", cmd.Name())
		return Usage
	}
	return CannotRun
}

// plain is an error of parsing flags without the names of Go's functions.
func plain(err error) error {
	var number *strconv.NumError
	if value := new(pflag.InvalidValueError); errors.As(err, &value) && errors.As(err, &number) {
		return fmt.Errorf("%s %q: %w", value.GetFlag().Name, value.GetValue(), number.Err)
	}
	return err
}

// Tell writes an error of the named command to stderr. What it says of files is
// escaped, but for the ends of lines.
func Tell(stderr io.Writer, name string, err error) {
	text := name + ": " + strings.TrimSpace(err.Error())
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(stderr, names.Printable(strings.ReplaceAll(line, "\t", "    ")))
	}
}

// oneSignal is how long signals that follow one are the same: a terminal sends its
// to a supervisor too, which hands it on.
const oneSignal = 300 * time.Millisecond

// Context ends on SIGINT, SIGTERM and, unless it is ignored as nohup does, SIGHUP: what
// has begun is put away where a terminal closes, too. A second signal ends the process the
// ordinary way. An agent leaves what is sent to all processes to its driver.
func Context() (context.Context, context.CancelFunc) {
	if isAgent() {
		signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGTERM)
		return context.WithCancel(context.Background())
	}
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneSignal, stop) })
	return ctx, stop
}

// Why is err, or what ended the context where err is only a consequence of that.
func Why(ctx context.Context, err error) error {
	switch ctx.Err() {
	case nil:
		return err
	case context.DeadlineExceeded:
		return fmt.Errorf("timed out: %w", context.Cause(ctx))
	}
	return fmt.Errorf("interrupted: %w", context.Cause(ctx))
}
