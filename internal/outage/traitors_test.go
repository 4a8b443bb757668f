//go:build linux

package outage

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// traitors know the token, and what a hello of an agent is, but that is not what they
// are. Where not all agents have come, one of them may end a run.
func traitors(k *knows) []stranger {
	const wrong = "^refused: the token does not fit$"
	proven := func(name, ends string, change func(h *wire.Hello)) stranger {
		return stranger{name, func(v *visit) error { return v.introduces(k.token, change) }, waits, "^refused: " + ends, anywhere}
	}
	all := []stranger{
		proven("proven: another run", "run is another there and ", func(h *wire.Hello) { h.Run = "another" }),
		proven("proven: another program", "program and configuration is another there and program ", func(h *wire.Hello) { h.Identity = "another" }),
		proven("proven: another byte order", "byte order is middle there and ", func(h *wire.Hello) { h.Endian = "middle" }),
		proven("proven: another world", "number of (agents is 69999|ranks is 70000) there and ", func(h *wire.Hello) { h.World = 70000 }),
		proven("proven: to another", "(agent|rank) dialed is -7 there and ", func(h *wire.Hello) { h.To = -7 }),
		proven("proven: a number beyond the world", "(agent|rank) [48] in a world of", func(h *wire.Hello) { h.From = h.World }),
		proven("proven: a number below 0", "(agent|rank) -1 in a world of", func(h *wire.Hello) { h.From = -1 }),
		proven("proven: one that has come", "(agent 0 .*has come already|rank [0-9] (has come already|does not coordinate))", func(h *wire.Hello) { h.From, h.Control = 0, true }),
		{"a proof in the other role", func(v *visit) error {
			nonce, err := v.challenged()
			if err != nil {
				return err
			}
			h := v.hello()
			return writes(told(note{Kind: "hello", Hello: &h, Nonce: nonce, MAC: proof(k.token, "accepts", nonce, &h)}))(v)
		}, waits, wrong, anywhere},
		{"a proof for another challenge", func(v *visit) error {
			if _, err := v.challenged(); err != nil {
				return err
			}
			h, zero := v.hello(), make([]byte, 16)
			return writes(told(note{Kind: "hello", Hello: &h, Nonce: zero, MAC: proof(k.token, "dials", zero, &h)}))(v)
		}, waits, wrong, anywhere},
		{"a proof of another hello", func(v *visit) error {
			nonce, err := v.challenged()
			if err != nil {
				return err
			}
			h := v.hello()
			mac := proof(k.token, "dials", nonce, &h)
			h.From = 2
			return writes(told(note{Kind: "hello", Hello: &h, Nonce: nonce, MAC: mac}))(v)
		}, waits, wrong, anywhere},
	}
	if k.overheard != nil {
		all = append(all, stranger{"a hello that was overheard", func(v *visit) error {
			if _, err := v.challenged(); err != nil {
				return err
			}
			return writes(k.overheard)(v)
		}, waits, wrong, anywhere})
	}
	return all
}

// member is let in by a rank, and says what is no frame, of a group that nobody has. The
// rank keeps the connection as long as its world: it might be one of the next group.
func member(k *knows) stranger {
	return stranger{"let in, and no frames", func(v *visit) error {
		err := v.introduces(k.token, func(h *wire.Hello) { h.Group = rand.N(uint64(1)<<60) | 1<<61 })
		if n, herr := heard(v); err == nil && herr == nil && n.Kind == "welcome" {
			return writes(noise(300))(v)
		}
		return err
	}, goes, "", anywhere}
}

// differs is a refusal that says both values.
var differs = regexp.MustCompile(`^refused: (.*) is .* there and (.*) here$`)

// learn finds out which hello is right at a port: a traitor asks, and is told.
func (k *knows) learn(at port) (*wire.Hello, error) {
	h := &wire.Hello{Version: wire.Version, Endian: "little", From: -1} // is looked at last
	for range 8 {
		conn, err := k.reach(at)
		if err != nil {
			return nil, err
		}
		v := &visit{conn, at, &knows{hellos: map[port]*wire.Hello{at: h}}}
		if err = v.introduces(k.token, nil); err != nil {
			return nil, err
		}
		said, err := v.outcome(time.Now().Add(20 * time.Second))
		conn.Close()
		if err != nil {
			return nil, err
		}
		m := differs.FindStringSubmatch(said)
		if m == nil {
			h.From = 1
			return h, nil
		}
		switch m[1] {
		case "run":
			h.Run = m[2]
		case "program and configuration":
			h.Identity = m[2]
		case "byte order":
			h.Endian = m[2]
		case "number of ranks":
			_, err = fmt.Sscan(m[2], &h.World)
		case "number of agents":
			_, err = fmt.Sscan(m[2], &h.World)
			h.World++ // and their driver
		default: // "rank dialed"
			_, err = fmt.Sscan(m[2], &h.To)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", said, err)
		}
	}
	return nil, fmt.Errorf("%s: it is never right", at.addr)
}

// sealed reports whether a port is TLS.
func (k *knows) sealed(at port) bool { return k.own != nil && at.network == "tcp" }

// reach connects to a port, as one of the run does.
func (k *knows) reach(at port) (net.Conn, error) {
	conn, err := at.dial()
	if err != nil || !k.sealed(at) {
		return conn, err
	}
	return tls.Client(conn, k.own), nil
}
