package turns

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Peer is a process that says who it is, and then answers each request, a line, with
// nanoseconds per call.
type Peer struct {
	Banner string // its first line

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	dir string
}

// Start starts a peer. dir, unless empty, holds what was built for it, and is removed
// with it, whether it starts or not.
func Start(cmd *exec.Cmd, dir string) (*Peer, error) {
	p := &Peer{cmd: cmd, dir: dir}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, p.never(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, p.never(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, p.never(err)
	}
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, p.never(fmt.Errorf("%s: no answer: %w", cmd.Path, cmd.Wait()))
	}
	p.Banner = p.out.Text()
	return p, nil
}

// never is the error of a peer that does not come about.
func (p *Peer) never(err error) error {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // of the system's directory for such things
	}
	return err
}

// Ask is the time of one call.
func (p *Peer) Ask(request string, reps int) (ns float64, err error) {
	if _, err := fmt.Fprintf(p.in, "%s %d\n", request, reps); err != nil {
		return 0, err
	}
	if !p.out.Scan() {
		return 0, fmt.Errorf("%s: no answer to %q", p.cmd.Path, request)
	}
	return strconv.ParseFloat(p.out.Text(), 64)
}

// Stop ends a peer, which does so when there are no more requests.
func (p *Peer) Stop() {
	p.in.Close()
	p.cmd.Wait()
	_ = p.never(nil)
}

// Without leaves out the variables of a prefix.
func Without(env []string, prefix string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, prefix) {
			out = append(out, e)
		}
	}
	return out
}
