package shm

import (
	"bytes"
	"testing"
	"unsafe"
)

// What is posted is owed until it is read, and what is lent until it is given back: in
// order. What the peer cannot read, what is short and what lies elsewhere is not posted.
func TestPost(t *testing.T) {
	pool := readable(t)
	a, b := pair(t)
	defer a.Close()
	defer b.Close()
	x := pool.Take(leastTaken / 4)
	defer pool.Give(x)
	mine := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	header := make([]byte, headerBytes)
	posts := func(payload []byte) bool {
		t.Helper()
		n, err := a.Post(header, payload)
		if err != nil || n != 0 && n != headerBytes+len(payload) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		return n > 0
	}
	owes := func(want int) {
		t.Helper()
		if n, err := a.Owed(); n != want || err != nil {
			t.Errorf("%d payloads are owed, %v, want %d", n, err, want)
		}
	}
	b.in.reach.Store(0)
	if posts(mine) {
		t.Error("a peer that cannot read is to")
	}
	b.in.reach.Store(1)
	if posts(mine[:leastPosted-4]) || posts(make([]byte, leastPosted)) {
		t.Error("what is short, or elsewhere, is posted")
	}
	for i := range x {
		x[i] = float32(i)
	}
	for range 3 {
		if !posts(mine) {
			t.Fatal("nothing is posted")
		}
	}
	owes(3)
	if n, err := b.Read(header, nil, 0); n != headerBytes || err != nil {
		t.Fatal(n, err)
	}
	owes(3)
	lent, ok, err := b.Lend(len(mine))
	if !ok || err != nil || unsafe.SliceData(lent) == unsafe.SliceData(x) || lent[len(x)-1] != x[len(x)-1] {
		t.Fatal("it is not lent", err)
	}
	owes(3)
	got := make([]byte, len(mine))
	if n, err := b.Read(header, got, 0); n != headerBytes+len(got) || err != nil || !bytes.Equal(got, mine) {
		t.Fatal(n, err)
	}
	owes(3) // the first is lent
	if err := b.Return(); err != nil {
		t.Fatal(err)
	}
	owes(1)
	if n, err := b.Read(header, got, 0); n != headerBytes+len(got) || err != nil {
		t.Fatal(n, err)
	}
	owes(0)
}
