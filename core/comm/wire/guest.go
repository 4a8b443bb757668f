package wire

import (
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Guest has proved to be of the run, and waits to be let in.
type Guest struct {
	*Channel
	Hello Hello
	proof []byte
}

// Refused is somebody that was not let in.
type Refused struct {
	From net.Addr
	// Hello is what it says it is, which may be nothing.
	Hello Hello
	// Ours says that it has proved to be of this run, and yet cannot be let in.
	Ours bool
	Err  error
}

// Welcome lets a guest in.
func (g *Guest) Welcome() error {
	if err := g.Send(step{Kind: stepWelcome, MAC: g.proof}, Patience); err != nil {
		return err
	}
	return g.Conn.SetDeadline(time.Time{})
}

// Refuse tells a guest why it is not let in, and ends its connection.
func (g *Guest) Refuse(why error) { refuse(g.Channel, why) }

func refuse(c *Channel, why error) {
	other := errors.As(why, new(*elsewhere))
	_ = c.Send(step{Kind: stepRefused, Text: why.Error(), Other: other}, time.Second) // it is a stranger
	c.Conn.Close()
}

// Serve takes connections until the listener is closed. A stranger gets a handshake's
// time and no more, and there are never more than maxStrangers of them. Each guest is
// handed to take on a goroutine of its own; refused, unless nil, is told of those
// that are not.
func (t *Terms) Serve(ln net.Listener, take func(*Guest), refused func(Refused)) {
	var all strangers
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, say: they come back
			continue
		}
		gone := all.come(conn)
		go func() {
			g, err := t.meet(conn)
			if err == nil {
				gone()
				take(g)
				return
			}
			defer gone()
			r := Refused{From: conn.RemoteAddr(), Err: err}
			if g != nil {
				r.Hello, r.Ours = g.Hello, g.proof != nil && g.Hello.Run == t.Run
				g.Refuse(err)
			}
			conn.Close()
			if refused != nil {
				refused(r)
			}
		}()
	}
}

// meet is the acceptor's side of a handshake, but for its last word. Who says who it
// is and is to be refused is given with the error.
func (t *Terms) meet(conn net.Conn) (*Guest, error) {
	conn, err := t.secure(conn, tls.Server)
	if err != nil {
		return nil, err
	}
	ch, own := &Channel{Conn: conn}, nonce()
	if err := ch.Send(step{Kind: stepChallenge, Nonce: own}, Patience); err != nil {
		return nil, err
	}
	var n step
	switch err := ch.Receive(maxHello, Patience, &n); {
	case err != nil:
		return nil, mistaken(err)
	case n.Kind != stepHello || n.Hello == nil || len(n.Nonce) != nonceBytes:
		return nil, fmt.Errorf("handshake: answered with %q", n.Kind)
	}
	g := &Guest{Channel: ch, Hello: *n.Hello}
	if n.Hello.Version != Version { // its hello may have other fields, so that no proof fits
		return g, fmt.Errorf("protocol version is %d there and %d here", n.Hello.Version, Version)
	}
	if !hmac.Equal(n.MAC, t.prove("dials", own, n.Hello)) {
		return g, ErrToken
	}
	g.proof = append([]byte{}, t.prove("accepts", n.Nonce, n.Hello)...)
	return g, t.accepts(n.Hello)
}
