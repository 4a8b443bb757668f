//go:build unix

package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/names"
)

// A header that is taken is one that put writes, byte for byte; all others are
// refused, and no length is believed.
func FuzzFrame(f *testing.F) {
	var b [headerBytes]byte
	for _, x := range []frame{{kind: piece, phase: 3, index: 7, seq: 1 << 40, call: 5, length: 4}, {kind: message, length: 1 << 63}, {kind: receipt, summed: true, payload: 9}} {
		x.put(&b)
		f.Add(bytes.Clone(b[:]))
	}
	f.Add(make([]byte, headerBytes))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerBytes {
			return
		}
		var b, again [headerBytes]byte
		copy(b[:], in)
		// The sum of the header would hide all else.
		sealed := b
		binary.LittleEndian.PutUint32(sealed[44:], crc32.Checksum(sealed[:44], castagnoli))
		for _, b := range []*[headerBytes]byte{&b, &sealed} {
			var x frame
			if x.get(b) != nil {
				continue
			}
			if x.put(&again); again != *b {
				t.Errorf("% x is taken for %+v, which is % x", *b, x, again)
			}
			if x.summed && x.check(in[headerBytes:]) == nil {
				y := x
				if y.sum(in[headerBytes:]); y != x {
					t.Errorf("a payload with another sum is taken")
				}
			}
		}
	})
}

// notes are a conversation with rank 0, as it travels.
func notes(t testing.TB, all ...note) (out []byte) {
	t.Helper()
	for _, n := range all {
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(b))), b...)
	}
	return out
}

// spoken is a connection whose other side has said all it says.
type spoken struct {
	net.Conn // nil: nothing else is called
	said     *bytes.Reader
}

func (s *spoken) Read(b []byte) (int, error)       { return s.said.Read(b) }
func (s *spoken) Write(b []byte) (int, error)      { return len(b), nil }
func (s *spoken) SetReadDeadline(time.Time) error  { return nil }
func (s *spoken) SetWriteDeadline(time.Time) error { return nil }
func (s *spoken) Close() error                     { return nil }

// Whatever a rank of the world says, rank 0 goes on, and has it for lost when it says
// no more.
func FuzzNotes(f *testing.F) {
	call := &protocol.Said{Op: names.OpSend, Count: 4, Peer: 1, Bounds: []int{0, 1}}
	f.Add(notes(f, note{Kind: noteBeat}, note{Kind: noteBye}))
	f.Add(notes(f, note{Kind: noteOdd, Rank: 1, Group: 1, Ranks: []int{0, 1, 2}, Call: call}, note{Kind: noteSaid, Rank: 1, Group: 1, Ranks: []int{1, 2}, Call: call}))
	f.Add(notes(f, note{Kind: noteStand, Stand: &stand{Moves: 3, Check: 1, Groups: []standInGroup{{Group: 1, Ranks: []int{1, 0}, Call: call}}}}))
	f.Add(notes(f, note{Kind: noteStand, Stand: &stand{Groups: []standInGroup{{Call: &protocol.Said{Op: names.OpBarrier}}}}}))
	f.Add(notes(f, note{Kind: noteLeft, Ranks: []int{-1, 7}, Left: &departure{Collectives: 3}}, note{Kind: noteFail, Failure: &protocol.Told{Peer: 99, Cause: "lost"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg := config(0, 3, "")
		cfg.Silence = time.Second
		h := newHub(&cfg)
		quiet := func(said []byte) *member {
			return &member{channel: &channel{&wire.Channel{Conn: &spoken{said: bytes.NewReader(said)}}}}
		}
		for r := range h.ranks {
			h.ranks[r] = quiet(nil)
		}
		m := quiet(b)
		h.ranks[1] = m
		h.listen(1, m)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.first == nil && !m.bye {
			t.Errorf("a rank that is gone is not missed")
		}
		for _, q := range h.queries {
			q.roll.Mismatch(q.ranks) // what rank 0 makes of it a while later
		}
	})
}
