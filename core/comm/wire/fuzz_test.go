package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"testing"
	"time"
)

// scripted is a connection whose other side says what is written down, and then no
// more.
type scripted struct {
	net.Conn // nil: nothing else is called
	said     *bytes.Reader
}

func (s *scripted) Read(b []byte) (int, error)       { return s.said.Read(b) }
func (s *scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) Close() error                     { return nil }

// said is a note as it travels.
func said(t testing.TB, note any) []byte {
	t.Helper()
	b, err := json.Marshal(note)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Whatever a stranger says, who does not know the token is neither let in nor believed,
// and costs no more memory than a hello may have.
func FuzzHello(f *testing.F) {
	own := &Terms{Run: "a run", Identity: "a program", Token: []byte("secret"), World: 3, Called: "rank"}
	other := *own
	other.Self = 1
	h := other.Hello(0)
	f.Add(said(f, step{Kind: stepHello, Hello: &h, Nonce: make([]byte, nonceBytes), MAC: other.prove("dials", make([]byte, nonceBytes), &h)}))
	f.Add(append(said(f, step{Kind: stepChallenge, Nonce: make([]byte, nonceBytes)}), said(f, step{Kind: stepWelcome})...))
	f.Add(append(said(f, step{Kind: stepChallenge, Nonce: make([]byte, nonceBytes)}), said(f, step{Kind: stepRefused, Text: "no"})...))
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, '{'})
	f.Add([]byte{2, 0, 0, 0, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := own.meet(&scripted{said: bytes.NewReader(b)}); err == nil {
			t.Errorf("%q is let in as %+v", b, g.Hello)
		}
		if ch, err := other.Greet(context.Background(), &scripted{said: bytes.NewReader(b)}, h); err == nil || ch != nil {
			t.Errorf("%q is believed", b)
		}
	})
}

// Who does not know the token is refused whatever the hello says, and who does is let
// in: the fuzz target would not see a handshake that refuses all.
func TestHandshake(t *testing.T) {
	for _, x := range []struct {
		token []byte
		in    bool
	}{{[]byte("secret"), true}, {[]byte("another"), false}, {nil, false}} {
		a, b := net.Pipe()
		here := &Terms{Run: "a run", Identity: "a program", Token: []byte("secret"), World: 3, Called: "rank"}
		there := *here
		there.Self, there.Token = 1, x.token
		met := make(chan error, 1)
		go func() {
			g, err := here.meet(a)
			if err == nil {
				err = g.Welcome()
			} else if g != nil {
				g.Refuse(err)
			}
			met <- err
		}()
		_, err := there.Greet(context.Background(), b, there.Hello(0))
		if (err == nil) != x.in || (<-met == nil) != x.in {
			t.Errorf("with token %q: %v", x.token, err)
		}
	}
}
