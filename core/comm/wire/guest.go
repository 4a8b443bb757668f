package wire

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"time"
)

// maxGuests bounds the handshakes of strangers in progress.
const maxGuests = 64

// Guest has proved to be of the run, and waits to be let in.
type Guest struct {
	*Channel
	Hello Hello
	proof []byte
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
	_ = c.Send(step{Kind: stepRefused, Text: why.Error()}, time.Second) // it is a stranger
	c.Conn.Close()
}

// Serve takes connections until the listener is closed. A stranger gets a handshake's
// time and no more, and there are never more than maxGuests of them. Each guest is
// handed to take on a goroutine of its own; refused, unless nil, is told of those
// that are not.
func (t *Terms) Serve(ln net.Listener, take func(*Guest), refused func(Hello, error)) {
	places := make(chan struct{}, maxGuests)
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, say: they come back
			continue
		}
		places <- struct{}{}
		go func() {
			g, err := t.meet(conn)
			<-places
			switch {
			case err == nil:
				take(g)
			case g == nil:
				conn.Close()
			default:
				if refused != nil {
					refused(g.Hello, err)
				}
				g.Refuse(err)
			}
		}()
	}
}

// meet is the acceptor's side of a handshake, but for its last word. Who says who it
// is and is to be refused is given with the error.
func (t *Terms) meet(conn net.Conn) (*Guest, error) {
	ch, own := &Channel{Conn: conn}, nonce()
	if err := ch.Send(step{Kind: stepChallenge, Nonce: own}, Patience); err != nil {
		return nil, err
	}
	var n step
	switch err := ch.Receive(maxHello, Patience, &n); {
	case err != nil:
		return nil, err
	case n.Kind != stepHello || n.Hello == nil || len(n.Nonce) != nonceBytes:
		return nil, fmt.Errorf("handshake: answered with %q", n.Kind)
	}
	g := &Guest{Channel: ch, Hello: *n.Hello}
	if !hmac.Equal(n.MAC, t.prove("dials", own, n.Hello)) {
		return g, ErrToken
	}
	g.proof = t.prove("accepts", n.Nonce, n.Hello)
	return g, t.accepts(n.Hello)
}
