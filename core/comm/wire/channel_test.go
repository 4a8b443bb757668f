package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// What stands behind a note may take longer than a part of it may.
func TestSendTakesAWhileForEachPart(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	from, to := &wire.Channel{Conn: a}, &wire.Channel{Conn: b}
	const patience = 500 * time.Millisecond
	want := bytes.Repeat([]byte("behind"), 100_000)
	sent := make(chan error, 1)
	go func() { sent <- from.Send(len(want), patience, want) }()
	var n int64
	if err := to.Receive(wire.MaxNote, patience, &n); err != nil {
		t.Fatal(err)
	}
	r := to.Behind(n, patience)
	var got bytes.Buffer
	for i := range 5 {
		time.Sleep(patience / 3) // in all longer than a part may take
		if _, err := io.CopyN(&got, r, int64(len(want)/5)); err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
	}
	if err := <-sent; err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%v, %d bytes of %d", err, got.Len(), len(want))
	}
}

// What stands behind a note and is cut off says so, also to who does not look at it.
func TestBehindIsCutOff(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		_, _ = a.Write([]byte("beh"))
		a.Close()
	}()
	behind := (&wire.Channel{Conn: b}).Behind(6, time.Second)
	if got, err := io.ReadAll(behind); string(got) != "beh" || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(behind.Err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v, %v", got, err, behind.Err)
	}
	a, b = net.Pipe()
	go func() {
		_, _ = a.Write([]byte("behind"))
		a.Close()
	}()
	behind = (&wire.Channel{Conn: b}).Behind(6, time.Second)
	if got, err := io.ReadAll(behind); string(got) != "behind" || err != nil || behind.Err != nil {
		t.Errorf("%q, %v, %v", got, err, behind.Err)
	}
}

// After a part of a note nothing else is sent: its reader would take it for the rest.
func TestNothingFollowsAPartOfANote(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	from := &wire.Channel{Conn: a}
	go func() { _, _ = io.ReadFull(b, make([]byte, 6)) }() // and reads no more
	if err := from.Send("a note of some length", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := from.Send("another", time.Second); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if rest, err := io.ReadAll(b); len(rest) > 0 || err != nil {
		t.Errorf("%q follows, %v", rest, err)
	}
}
