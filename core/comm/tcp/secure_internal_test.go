//go:build unix

package tcp

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// The end of a connection reaches the link that is over it, after all that has come before.
func TestSealedEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l, err := seal(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := []byte("all that was said")
	if _, err := far.Write(said); err != nil {
		t.Fatal(err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	header, came := make([]byte, len(said)+1), 0
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		n, err := l.Read(header, nil, came)
		came += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || time.Since(begun) > 20*time.Second {
			t.Fatalf("%v, and no end after %d bytes", err, came)
		}
	}
	if got := string(header[:came]); got != string(said) {
		t.Errorf("%q has come before the end", got)
	}
}
