//go:build unix

package procs

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// join connects to the driver. An agent that its driver has started tries again where it
// is shut out without a word: strangers that crowd in take each other's room, and its own.
func (a *agent) join(ctx context.Context) error {
	for late := time.Now().Add(a.Join); ; {
		err := a.dial(ctx)
		shut := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !shut || !a.started || time.Now().After(late) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dial is one try to connect.
func (a *agent) dial(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, a.Join*3/2) // the driver gives up before: it can say who is missing
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.Driver)
	if err != nil {
		return err
	}
	terms := a.terms(a.identity, a.Agent)
	if a.at, err = a.place(conn.LocalAddr()); err == nil {
		hello := terms.Hello(a.Agents)
		hello.Process, hello.Host, hello.Boot, hello.Local, hello.Address = os.Getpid(), a.at.host, boot(), a.Local, a.at.where()
		a.ch, err = terms.Greet(ctx, conn, hello)
	}
	if err != nil {
		conn.Close()
	}
	return err
}
