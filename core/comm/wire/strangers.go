package wire

import (
	"net"
	"slices"
	"sync"
)

// maxStrangers bounds the handshakes in progress.
const maxStrangers = 256

// strangers are those whose handshakes are in progress, the oldest first. Where there
// are too many, the oldest of the address that has most of them goes: so whoever only
// holds connections makes room for itself, and who is quick, or is elsewhere, comes in.
type strangers struct {
	mu  sync.Mutex
	all []*stranger
}

type stranger struct {
	conn net.Conn
	from string
}

// come adds a stranger; gone says that its handshake is over.
func (s *strangers) come(conn net.Conn) (gone func()) {
	x := &stranger{conn: conn}
	if a := conn.RemoteAddr(); a != nil {
		x.from, _, _ = net.SplitHostPort(a.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxStrangers {
		s.drop()
	}
	s.all = append(s.all, x)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = slices.DeleteFunc(s.all, func(y *stranger) bool { return y == x })
	}
}

// drop closes the connection of one. The caller holds mu.
func (s *strangers) drop() {
	count, most := map[string]int{}, ""
	for _, x := range s.all {
		if count[x.from]++; count[x.from] > count[most] {
			most = x.from
		}
	}
	i := slices.IndexFunc(s.all, func(x *stranger) bool { return x.from == most })
	s.all[i].conn.Close()
	s.all = slices.Delete(s.all, i, i+1)
}
