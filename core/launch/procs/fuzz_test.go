//go:build unix

package procs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// spoken is a connection whose other side has said all it says.
type spoken struct {
	net.Conn // nil: nothing else is called
	said     *bytes.Reader
}

func (s *spoken) Read(b []byte) (int, error)       { return s.said.Read(b) }
func (s *spoken) Write(b []byte) (int, error)      { return len(b), nil }
func (s *spoken) SetReadDeadline(time.Time) error  { return nil }
func (s *spoken) SetWriteDeadline(time.Time) error { return nil }

// notes are a conversation as it travels, with what a rank recorded at its end.
func notes(t testing.TB, log *trace.Log, all ...note) (out []byte) {
	t.Helper()
	var recorded bytes.Buffer
	if log != nil {
		if err := log.Write(&recorded); err != nil {
			t.Fatal(err)
		}
		all = append(all, note{Kind: noteLog, Task: 1, Bytes: int64(recorded.Len())})
	}
	for _, n := range all {
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(b))), b...)
	}
	return append(out, recorded.Bytes()...)
}

// Whatever an agent says, the driver goes on, and takes no more of it than its words.
func FuzzSaid(f *testing.F) {
	log := &trace.Log{Header: trace.Header{Schema: trace.Schema, Rank: 1, World: 4, Plan: "dp=4", Spec: trace.Spec{Drill: json.RawMessage("{}")}}}
	log.Record(trace.Event{Kind: trace.KindEnd})
	f.Add(notes(f, log, note{Kind: noteBeat}, note{Kind: noteOpen, Task: 1, World: 1, Addr: "x"}, note{Kind: noteProgress, Task: 1, Progress: &progress{}}))
	f.Add(notes(f, nil, note{Kind: noteMeet, Task: 1}, note{Kind: noteMeet, Task: 1, Step: -1, Text: "no"}, note{Kind: noteAsk, Task: 1, Step: 1 << 40}))
	f.Add(notes(f, nil, note{Kind: noteMeet, Task: 1, Step: 1}, note{Kind: noteDone, Task: 1, End: &ended{Rank: 99, Because: -7, Text: "x"}}, note{Kind: noteDone, Task: 1}))
	f.Add(notes(f, nil, note{Kind: noteLog, Task: 2, Bytes: -1}))
	f.Add(notes(f, nil, note{Kind: noteLog, Task: 1, Bytes: 1 << 62}))
	f.Fuzz(func(t *testing.T, b []byte) {
		team := &Team{seat: Seat{Agents: 2, Silence: time.Second}}
		for i := range 2 {
			c := &child{agent: i, cmd: &exec.Cmd{}, ch: &wire.Channel{Conn: &spoken{said: bytes.NewReader(nil)}}}
			team.children = append(team.children, c)
		}
		team.children[1].ch.Conn = &spoken{said: bytes.NewReader(b)}
		r := &run{id: 1, say: team.send, takes: []int{0, 1}, logs: map[int]*trace.Log{}, ended: map[int]*ended{}, done: make(chan struct{})}
		r.Progress = func(train.Progress) {}
		r.Stop = (&launch.Stop{Wanted: func() bool { return false }}).Ask
		team.runs = map[int]*run{1: r}
		if team.listen(team.children[1]) == nil {
			t.Error("an agent that is gone is listened to")
		}
		r.ends(0, &ended{Rank: -1, Because: -1})
		r.ends(1, nil)
		if _, err := team.outcome(t.Context(), r); err == nil && r.ended[1] == nil {
			t.Error("a run ended well without one of its agents")
		}
	})
}
