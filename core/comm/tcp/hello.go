//go:build unix

package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// version of the protocol: frames, notes and handshakes.
const version = 1

// hello is who dials whom, and why. Both ends must be of one run.
type hello struct {
	Version  int    `json:"version"`
	Run      string `json:"run"`      // names the run: ranks of another one are refused
	Identity string `json:"identity"` // hash of what must be equal on all ranks: program and configuration
	Endian   string `json:"endian"`
	World    int    `json:"world"`
	From     int    `json:"from"`
	To       int    `json:"to"`
	Control  bool   `json:"control,omitempty"`
	Group    uint64 `json:"group,omitempty"` // of a data connection
	Addr     string `json:"addr,omitempty"`  // of a control connection: where From listens
}

// endian is the order of bytes in this machine's memory, which is that of frames.
func endian() string {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], 1)
	if b[0] == 1 {
		return "little"
	}
	return "big"
}

// hello is this rank's, to another one.
func (c *Config) hello(to int) hello {
	return hello{Version: version, Run: c.Run, Identity: c.Identity, Endian: endian(), World: c.Size, From: c.Rank, To: to}
}

// accepts says why another rank's hello is refused, with both values.
func (c *Config) accepts(h *hello) error {
	own := c.hello(h.From)
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"protocol version", h.Version, own.Version},
		{"run", h.Run, own.Run},
		{"program and configuration", h.Identity, own.Identity},
		{"byte order", h.Endian, own.Endian},
		{"world size", h.World, own.World},
		{"rank dialed", h.To, c.Rank},
	} {
		if x.got != x.want {
			return fmt.Errorf("%s is %v there and %v here", x.what, x.got, x.want)
		}
	}
	if h.From < 0 || h.From >= c.Size {
		return fmt.Errorf("rank %d in a world of %d", h.From, c.Size)
	}
	return nil
}

// errToken is what a peer with another token is told, and no more.
var errToken = errors.New("the token does not fit")

// prove is the proof of knowing the token for a challenge.
func (c *Config) prove(role string, nonce []byte, h *hello) []byte {
	if len(c.Token) == 0 {
		return nil
	}
	said, err := json.Marshal(h)
	if err != nil {
		return nil // plain fields
	}
	m := hmac.New(sha256.New, c.Token)
	for _, part := range [][]byte{[]byte("lockstep " + role), nonce, said} {
		m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		m.Write(part)
	}
	return m.Sum(nil)
}

// handshakePatience bounds each step of a handshake.
const handshakePatience = 10 * time.Second

// nonceBytes is the length of a challenge.
const nonceBytes = 16

func nonce() []byte {
	b := make([]byte, nonceBytes)
	rand.Read(b) // never fails
	return b
}

// greet is the dialer's side of a handshake.
func (c *Config) greet(conn net.Conn, h hello) error {
	ch := &channel{conn: conn}
	first, err := ch.receive(maxHello, handshakePatience)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if first.Kind != noteChallenge || len(first.Nonce) != nonceBytes {
		return fmt.Errorf("handshake: began with %q of %d bytes", first.Kind, len(first.Nonce))
	}
	own := nonce()
	if err := ch.send(note{Kind: noteHello, Rank: c.Rank, Hello: &h, Nonce: own, MAC: c.prove("dials", first.Nonce, &h)}, handshakePatience); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	answer, err := ch.receive(maxHello, handshakePatience)
	switch {
	case err != nil:
		return fmt.Errorf("handshake: %w", err)
	case answer.Kind == noteRefused:
		return &refusal{answer.Text}
	case answer.Kind != noteWelcome:
		return fmt.Errorf("handshake: answered with %q", answer.Kind)
	case !hmac.Equal(answer.MAC, c.prove("accepts", own, &h)):
		return &refusal{errToken.Error()}
	}
	return nil
}

// refusal is a handshake that the other side, or this one, has refused: to try again
// is of no use.
type refusal struct{ text string }

func (r *refusal) Error() string { return "refused: " + r.text }

// meet is the acceptor's side of a handshake, but for its last word: welcome and
// refuse say that.
func (c *Config) meet(conn net.Conn) (ch *channel, h *hello, proof []byte, err error) {
	ch = &channel{conn: conn}
	own := nonce()
	if err := ch.send(note{Kind: noteChallenge, Nonce: own}, handshakePatience); err != nil {
		return nil, nil, nil, err
	}
	n, err := ch.receive(maxHello, handshakePatience)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case n.Kind != noteHello || n.Hello == nil || len(n.Nonce) != nonceBytes:
		return nil, nil, nil, fmt.Errorf("handshake: answered with %q", n.Kind)
	case !hmac.Equal(n.MAC, c.prove("dials", own, n.Hello)):
		return ch, n.Hello, nil, errToken
	}
	return ch, n.Hello, c.prove("accepts", n.Nonce, n.Hello), c.accepts(n.Hello)
}

func (c *channel) refuse(why error) {
	_ = c.send(note{Kind: noteRefused, Text: why.Error()}, time.Second) // it is a stranger
}
