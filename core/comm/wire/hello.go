package wire

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Version is that of the protocol: frames, notes and handshakes.
const Version = 1

// Hello is who dials whom, and why. Both ends must be of one run.
type Hello struct {
	Version  int    `json:"version"`
	Run      string `json:"run"`      // names the run: processes of another one are refused
	Identity string `json:"identity"` // hash of what must be equal on all: program and configuration
	Endian   string `json:"endian"`
	World    int    `json:"world"`
	From     int    `json:"from"`
	To       int    `json:"to"`
	Process  int    `json:"process,omitempty"` // of an agent
	Host     string `json:"host,omitempty"`    // of an agent
	Boot     string `json:"boot,omitempty"`    // of an agent: tells hosts of one name apart
	Local    int    `json:"local,omitempty"`   // of an agent: 1 and its number on its host, where a launcher says it
	Address  string `json:"address,omitempty"` // of an agent: where it listens, but for the ports
	Control  bool   `json:"control,omitempty"`
	Group    uint64 `json:"group,omitempty"` // of a data connection
	// Addrs are of a control connection: where From listens, by the name of a way to it.
	Addrs map[string]string `json:"addrs,omitempty"`
}

// Terms are what all that meet must agree on, and who this is among them: ranks of a
// world, or a driver and its agents.
type Terms struct {
	Run, Identity string
	// Token is a secret that all know; without one nobody has to prove it.
	Token []byte
	// TLS, where not nil, is of both sides of every connection: see TLS.
	TLS *tls.Config
	// Self is one of World.
	Self, World int
	// Called is what one of them is called in errors: "rank". Beside is how many of World
	// are called otherwise.
	Called string
	Beside int
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

// Hello is this one's, to another.
func (t *Terms) Hello(to int) Hello {
	return Hello{Version: Version, Run: t.Run, Identity: t.Identity, Endian: endian(), World: t.World, From: t.Self, To: to}
}

// accepts says why another one's hello is refused, with both values.
func (t *Terms) accepts(h *Hello) error {
	own := t.Hello(h.From)
	if h.Run != own.Run {
		return &elsewhere{fmt.Errorf("run is %v there and %v here", h.Run, own.Run)}
	}
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"program and configuration", h.Identity, own.Identity},
		{"byte order", h.Endian, own.Endian},
		{"number of " + t.Called + "s", h.World - t.Beside, own.World - t.Beside},
		{t.Called + " dialed", h.To, t.Self},
	} {
		if x.got != x.want {
			return fmt.Errorf("%s is %v there and %v here", x.what, x.got, x.want)
		}
	}
	if h.From < 0 || h.From >= t.World {
		return fmt.Errorf("%s %d in a world of %d", t.Called, h.From, t.World)
	}
	return nil
}

// ErrToken is what a peer with another token is told, and no more.
var ErrToken error = &elsewhere{errors.New("the token does not fit")}

// elsewhere is why somebody is refused who may be of another run that meets nearby.
type elsewhere struct{ error }

// prove is the proof of knowing the token for a challenge.
func (t *Terms) prove(role string, nonce []byte, h *Hello) []byte {
	if len(t.Token) == 0 {
		return nil
	}
	said, err := json.Marshal(h)
	if err != nil {
		return nil // plain fields
	}
	m := hmac.New(sha256.New, t.Token)
	for _, part := range [][]byte{[]byte("lockstep " + role), nonce, said} {
		m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		m.Write(part)
	}
	return m.Sum(nil)
}

// step is a note of a handshake.
type step struct {
	Kind  string `json:"kind"`
	Hello *Hello `json:"hello,omitempty"`
	Text  string `json:"text,omitempty"`  // of a refusal
	Other bool   `json:"other,omitempty"` // of a refusal: the run is another one
	Nonce []byte `json:"nonce,omitempty"`
	MAC   []byte `json:"mac,omitempty"`
}

// Kinds of steps.
const (
	stepChallenge = "challenge" // acceptor: prove yourself
	stepHello     = "hello"     // dialer: who I am
	stepWelcome   = "welcome"   // acceptor
	stepRefused   = "refused"   // acceptor, with a text
)

const (
	// maxHello bounds what a stranger may say.
	maxHello = 4 << 10
	// Patience bounds each step of a handshake.
	Patience = 10 * time.Second
	// nonceBytes is the length of a challenge.
	nonceBytes = 16
)

func nonce() []byte {
	b := make([]byte, nonceBytes)
	rand.Read(b) // never fails
	return b
}

// Greet is the dialer's side of a handshake, which ends with ctx. After an error the
// connection is of no use.
func (t *Terms) Greet(ctx context.Context, conn net.Conn, h Hello) (*Channel, error) {
	goesOn := context.AfterFunc(ctx, func() { conn.Close() })
	ch, err := t.greet(conn, h)
	if goesOn() {
		return ch, err
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = t.silent(cause)
	}
	return nil, fmt.Errorf("handshake: %w", cause)
}

// silent is an error of a peer that says nothing.
func (t *Terms) silent(err error) error {
	if t.TLS != nil {
		return err
	}
	return fmt.Errorf("%w: it says nothing, and may want TLS", err)
}

func (t *Terms) greet(conn net.Conn, h Hello) (*Channel, error) {
	conn, err := t.secure(conn, tls.Client)
	if err != nil {
		return nil, err
	}
	ch := &Channel{Conn: conn}
	var first, answer step
	if err := ch.Receive(maxHello, Patience, &first); err != nil {
		// Who waits for TLS says nothing, and gives up as late as this side does: which
		// of them is first is chance.
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
			err = t.silent(err)
		}
		return nil, alerted(err)
	}
	if first.Kind != stepChallenge || len(first.Nonce) != nonceBytes {
		return nil, fmt.Errorf("handshake: began with %q of %d bytes", first.Kind, len(first.Nonce))
	}
	own := nonce()
	if err := ch.Send(step{Kind: stepHello, Hello: &h, Nonce: own, MAC: t.prove("dials", first.Nonce, &h)}, Patience); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	switch err := ch.Receive(maxHello, Patience, &answer); {
	case err != nil:
		return nil, fmt.Errorf("handshake: %w", err)
	case answer.Kind == stepRefused:
		return nil, &Refusal{Text: answer.Text, Elsewhere: answer.Other}
	case answer.Kind != stepWelcome:
		return nil, fmt.Errorf("handshake: answered with %q", answer.Kind)
	case !hmac.Equal(answer.MAC, t.prove("accepts", own, &h)):
		return nil, &Refusal{Text: ErrToken.Error(), Elsewhere: true}
	}
	return ch, conn.SetDeadline(time.Time{})
}

// Refusal is a handshake that the other side, or this one, has refused: to try again
// is of no use.
type Refusal struct {
	Text string
	// Elsewhere says that the other side is of another run: one's own may be nearby.
	Elsewhere bool
}

// Error says why.
func (r *Refusal) Error() string { return "refused: " + r.Text }
