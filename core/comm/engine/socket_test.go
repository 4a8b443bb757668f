//go:build unix

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// linked gives two links that are connected.
func linked(t *testing.T) (a, b Link) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	links := make([]Link, 2)
	for i, c := range []net.Conn{near, far} {
		if links[i], err = Socket(c, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a connection whose socket is a link's is still of use: %v", err)
		}
	}
	return links[0], links[1]
}

// moved calls a side of a link until all of a frame has gone.
func moved(total int, step func(done int) (int, error)) error {
	for begun, done := time.Now(), 0; done < total; {
		n, err := step(done)
		if err != nil {
			return err
		}
		if done += n; time.Since(begun) > 10*time.Second {
			return fmt.Errorf("%d of %d bytes in 10 s", done, total)
		}
	}
	return nil
}

// Frames of any length come as they were sent, and the end of a peer is seen after them.
func TestSocket(t *testing.T) {
	a, b := linked(t)
	defer b.Close()
	header := bytes.Repeat([]byte{7}, headerBytes)
	for _, n := range []int{0, 1, 3, 1001, 300001} {
		sent := make([]byte, n)
		for i := range sent {
			sent[i] = byte(i*31 + n)
		}
		wrote := make(chan error, 1)
		go func() {
			wrote <- moved(headerBytes+n, func(done int) (int, error) { return a.Write(header, sent, done) })
		}()
		head, got := make([]byte, headerBytes), make([]byte, n)
		if err := moved(headerBytes+n, func(done int) (int, error) { return b.Read(head, got, done) }); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(head, header) || !bytes.Equal(got, sent) {
			t.Errorf("a frame of %d bytes is another one when it comes", n)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := moved(1, func(int) (int, error) { return b.Read(header, nil, 0) }); !errors.Is(err, io.EOF) {
		t.Errorf("the peer has gone: %v, want io.EOF", err)
	}
}
