//go:build unix

package procs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// child is an agent as its driver knows it.
type child struct {
	agent  int
	pid    int
	hello  wire.Hello    // what it said when it came
	apart  bool          // it may be on another host
	cmd    *exec.Cmd     // nil where a launcher has started it
	hold   *os.File      // end of the pipe on which the agent waits for the driver's end
	ended  chan struct{} // closed when the process, or what a launcher has started, is gone
	status error         // of its end

	ch *wire.Channel // nil until it comes
}

// start starts the process of an agent.
func (s Seat) start(o *Options) (*child, error) {
	said, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	c := &child{agent: s.Agent, hold: write, ended: make(chan struct{}), cmd: exec.Command(Executable(), o.Args...)}
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Env = append(slices.Concat(os.Environ(), o.Environment), seatVariable+"="+string(said))
	if o.Stdin != nil {
		c.cmd.Stdin = bytes.NewReader(o.Stdin)
	}
	c.cmd.Stderr = os.Stderr
	c.cmd.ExtraFiles = []*os.File{read}
	if err := c.cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("agent %d: %w", s.Agent, err)
	}
	c.pid = c.cmd.Process.Pid
	go func() {
		c.status = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// String is "agent 2 (process 4711)".
func (c *child) String() string {
	if c.pid == 0 {
		return fmt.Sprintf("agent %d", c.agent)
	}
	if c.apart && c.hello.Host != "" {
		return fmt.Sprintf("agent %d (process %d on %s)", c.agent, c.pid, c.hello.Host)
	}
	return fmt.Sprintf("agent %d (process %d)", c.agent, c.pid)
}

// lost is that it is.
func (c *child) lost(why error) *Lost {
	l := &Lost{Agent: c.agent, Process: c.pid, Why: why}
	if c.apart {
		l.Host = c.hello.Host
	}
	return l
}

// fate says how the process ended.
func (c *child) fate() string {
	exit, ok := c.status.(*exec.ExitError)
	if !ok {
		return "ended without a word"
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return fmt.Sprintf("was ended by signal %d (%v)", s.Signal(), s.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", exit.ExitCode())
}

// lastWords is how long a connection may be gone before the process is: on a machine
// with other work the system takes its time to end one.
const lastWords = 3 * time.Second

// last is why an agent is gone whose connection is: how its process ended says more
// than how that did.
func (c *child) last(why error) error {
	if c.cmd == nil {
		if errors.Is(why, io.EOF) || errors.Is(why, io.ErrUnexpectedEOF) || errors.Is(why, syscall.ECONNRESET) {
			return errors.New("ended without a word")
		}
		return why
	}
	select {
	case <-c.ended:
		return errors.New(c.fate())
	case <-time.After(lastWords):
		return why
	}
}

// kill ends the process, if it is this one's to end.
func (c *child) kill() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill() // it may have ended
	}
}

// end waits until the process is gone, and kills it after a while.
func (c *child) end(patience time.Duration) {
	select {
	case <-c.ended:
	case <-time.After(patience):
		if c.cmd == nil {
			return // its launcher sees to it
		}
		c.kill()
		<-c.ended
	}
	if c.hold != nil {
		c.hold.Close()
	}
}
