//go:build unix

package procs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// child is an agent as its driver knows it.
type child struct {
	agent  int
	pid    int
	cmd    *exec.Cmd
	hold   *os.File      // end of the pipe on which the agent waits for the driver's end
	ended  chan struct{} // closed when the process is gone
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
	return fmt.Sprintf("agent %d (process %d)", c.agent, c.pid)
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

// end waits until the process is gone, and kills it after a while.
func (c *child) end(patience time.Duration) {
	select {
	case <-c.ended:
	case <-time.After(patience):
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.ended
	}
	c.hold.Close()
}

// names lists agents: "agents 1 and 3".
func names(all []*child) string {
	var out []string
	for _, c := range all {
		out = append(out, c.String())
	}
	return strings.Join(out, ", ")
}
