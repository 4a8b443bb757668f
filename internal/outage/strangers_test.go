//go:build linux

package outage

import (
	"bytes"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// note is one of a handshake, as it travels.
type note struct {
	Kind  string      `json:"kind"`
	Hello *wire.Hello `json:"hello,omitempty"`
	Text  string      `json:"text,omitempty"`
	Nonce []byte      `json:"nonce,omitempty"`
	MAC   []byte      `json:"mac,omitempty"`
}

// framed is what travels of a text.
func framed(text []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// told is a note as it travels.
func told(n note) []byte {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // plain fields
	}
	return framed(b)
}

// heard reads a note.
func heard(from io.Reader) (n note, err error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return n, err
	}
	body := make([]byte, min(binary.LittleEndian.Uint32(head[:]), 1<<16))
	if _, err := io.ReadFull(from, body); err != nil {
		return n, err
	}
	return n, json.Unmarshal(body, &n)
}

// proof is what who knows a token answers a challenge with.
func proof(token, role string, nonce []byte, h *wire.Hello) []byte {
	said, err := json.Marshal(h)
	if err != nil {
		panic(err) // plain fields
	}
	m := hmac.New(sha256.New, []byte(token))
	for _, part := range [][]byte{[]byte("lockstep " + role), nonce, said} {
		m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		m.Write(part)
	}
	return m.Sum(nil)
}

// visit is a stranger at a port.
type visit struct {
	net.Conn
	at    port
	knows *knows
}

// knows is what strangers know of a run.
type knows struct {
	token            string               // empty where nobody does
	hellos           map[port]*wire.Hello // that are right, but for a proof
	overheard        []byte               // an agent's hello with its proof
	own, other, bare *tls.Config          // where the ports are TLS: certificates of the run's authority and of another one, and none
}

// hello is one that is right at the port, as far as that is known.
func (v *visit) hello() wire.Hello {
	if h := v.knows.hellos[v.at]; h != nil {
		return *h
	}
	return wire.Hello{Version: wire.Version, Run: "the command line", Identity: "a program", Endian: "little", World: 4, From: 1, To: 3}
}

// challenged reads the challenge.
func (v *visit) challenged() (nonce []byte, err error) {
	n, err := heard(v)
	if err == nil && (n.Kind != "challenge" || len(n.Nonce) < 16) {
		err = fmt.Errorf("it begins with %+v", n)
	}
	return n.Nonce, err
}

// introduces shakes hands up to the hello, which change makes another one than the right
// one, with a proof by a token, if any.
func (v *visit) introduces(token string, change func(h *wire.Hello)) error {
	nonce, err := v.challenged()
	if err != nil {
		return err
	}
	h := v.hello()
	if change != nil {
		change(&h)
	}
	n := note{Kind: "hello", Hello: &h, Nonce: make([]byte, 16)}
	if token != "" {
		n.MAC = proof(token, "dials", nonce, &h)
	}
	_, err = v.Write(told(n))
	return err
}

// outcome reads what the other side says until it has ended the connection, or it is
// late: the text of a refusal, "welcome", or nothing.
func (v *visit) outcome(late time.Time) (said string, err error) {
	_ = v.SetReadDeadline(late)
	for {
		n, err := heard(v)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return said, err
		case err != nil:
			return said, nil
		case n.Kind == "refused":
			said = "refused: " + n.Text
		case n.Kind == "welcome":
			return n.Kind, nil
		}
	}
}

// stranger is a kind of them.
type stranger struct {
	name string
	says func(*visit) error // nil: nothing
	then after
	ends string // what it is told, as a pattern; whom there is no room for is told nothing
	to   where
}

// after is what a stranger does when it has said what it says.
type after int

const (
	waits after = iota // for the other side to end the connection
	goes               // ends it
	stays              // waits, and wants to be there when others come
)

// where is to which ports a kind of strangers goes.
type where int

const (
	anywhere where = iota
	plain          // those without TLS
	sealed         // those with TLS
)

// writes says bytes.
func writes(b []byte) func(*visit) error {
	return func(v *visit) error {
		_, err := v.Write(b)
		return err
	}
}

// noise is random bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	crand.Read(b) // never fails
	return b
}

// strangers know no token.
func strangers() []stranger {
	hello := told(note{Kind: "hello", Hello: &wire.Hello{Version: wire.Version}, Nonce: make([]byte, 16), MAC: make([]byte, 32)})
	const wrong = "^refused: the token does not fit$"
	all := []stranger{
		{"nothing, and goes", nil, goes, "", anywhere},
		{"nothing, and stays", nil, stays, "", anywhere},
		{"half a length, and goes", writes(hello[:2]), goes, "", anywhere},
		{"half a length, and stays", writes(hello[:2]), stays, "", anywhere},
		{"half a hello, and goes", writes(hello[:len(hello)/2]), goes, "", anywhere},
		{"half a hello, and stays", writes(hello[:len(hello)/2]), stays, "", anywhere},
		{"a length of 4 GiB", writes([]byte{0xff, 0xff, 0xff, 0xff}), waits, "^$", anywhere},
		{"a length of 2 GiB, and stays", writes(append([]byte{0xff, 0xff, 0xff, 0x7f}, noise(500)...)), stays, "^$", anywhere},
		{"noise", func(v *visit) error { return writes(append(noise(3), append([]byte{1}, noise(200)...)...))(v) }, waits, "^$", anywhere},
		{"HTTP", writes([]byte("GET / HTTP/1.1\r\nHost: node1\r\n\r\n")), waits, "^$", anywhere},
		{"a hello and a megabyte", func(v *visit) error {
			_, _ = v.Write(append(bytes.Clone(hello), noise(1<<20)...)) // nobody reads it all
			return nil
		}, waits, "^(refused: the token does not fit)?$", anywhere},
		{"a hello without a proof", func(v *visit) error { return v.introduces("", nil) }, waits, wrong, anywhere},
		{"a hello by another token", func(v *visit) error { return v.introduces("another token, long enough", nil) }, waits, wrong, anywhere},
		{"a hello that does not wait for its challenge", writes(hello), waits, wrong, anywhere},
		{"a hello of another version", func(v *visit) error {
			return v.introduces("", func(h *wire.Hello) { h.Version++ })
		}, waits, fmt.Sprintf("^refused: protocol version is %d there and %d here$", wire.Version+1, wire.Version), anywhere},
		{"a hello of another version that is signed by nobody's token", func(v *visit) error {
			return v.introduces("another token, long enough", func(h *wire.Hello) { h.Version = -1 })
		}, waits, "^refused: protocol version is -1 there", anywhere},
		{"a proof of another length", func(v *visit) error {
			h := v.hello()
			return writes(told(note{Kind: "hello", Hello: &h, Nonce: make([]byte, 16), MAC: []byte{1}}))(v)
		}, waits, wrong, anywhere},
		{"a challenge of another length", func(v *visit) error {
			h := v.hello()
			return writes(told(note{Kind: "hello", Hello: &h, Nonce: make([]byte, 15)}))(v)
		}, waits, "^$", anywhere},
		{"a hello longer than one may be", writes(framed(bytes.Repeat([]byte(" "), 5000))), waits, "^$", anywhere},
	}
	for _, text := range []string{"", "{}", "null", "[1]", `{"kind":"welcome"}`, `{"kind":"challenge","nonce":"AAAAAAAAAAAAAAAAAAAAAA=="}`, `{"kind":"hello"}`, `{"kind":7}`,
		`{"kind":"hello","hello":{"from":1e99}}`, strings.Repeat(`[`, 4000)} {
		all = append(all, stranger{fmt.Sprintf("the note %.40s", text), writes(framed([]byte(text))), waits, "^$", anywhere})
	}
	return append(all, spoken()...)
}

// spoken are strangers that mistake the protocol beneath.
func spoken() []stranger {
	shake := func(config func(*knows) *tls.Config) func(*visit) error {
		return func(v *visit) error {
			c := tls.Client(v.Conn, config(v.knows))
			if err := c.Handshake(); err != nil {
				return nil // as it should, or at the first read
			}
			v.Conn = c
			return nil
		}
	}
	old := func(k *knows) *tls.Config {
		c := k.own.Clone()
		c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		return c
	}
	hello := told(note{Kind: "hello", Hello: &wire.Hello{Version: wire.Version}, Nonce: make([]byte, 16)})
	return []stranger{
		{"a TLS handshake where there is none", func(v *visit) error {
			_ = v.SetDeadline(time.Now().Add(20 * time.Second))
			if err := tls.Client(v.Conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
				return errors.New("it shakes hands")
			}
			return nil
		}, waits, "^$", plain},
		{"a hello where TLS is", writes(hello), waits, "^$", sealed},
		{"no certificate", shake(func(k *knows) *tls.Config { return k.bare }), waits, "^$", sealed},
		{"a certificate of another authority", shake(func(k *knows) *tls.Config { return k.other }), waits, "^$", sealed},
		{"TLS 1.2", shake(old), waits, "^$", sealed},
		{"half a TLS handshake, and stays", writes([]byte{22, 3, 1, 2, 0, 1}), stays, "^$", sealed},
	}
}
