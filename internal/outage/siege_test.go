//go:build linux

package outage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// siege is a run that strangers come to.
type siege struct {
	*stage
	knows
	mu     sync.Mutex
	counts map[string]map[string]int // visits by kind and end
	made   int
	over   bool // somebody found a port closed
}

// patience is how long a stranger may be there at most: two steps of a handshake, on a
// machine with other work.
const patience = 2*wire.Patience + 5*time.Second

// ended notes how a visit did, and whether it should have.
func (g *siege) ended(k stranger, end, said string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		g.over = true
		return
	case err != nil:
		end = "error"
	case said != "":
		end = "was told why"
	}
	if g.counts[k.name] == nil {
		g.counts[k.name] = map[string]int{}
	}
	g.counts[k.name][end]++
	g.made++
	if err != nil || said != "" && !regexp.MustCompile(k.ends).MatchString(said) {
		g.t.Errorf("%s: told %q, %v, want %q", k.name, said, err, k.ends)
	}
}

// visit is one of a stranger. Who stays does so until the other side, or ctx, ends it.
func (g *siege) visit(ctx context.Context, k stranger, at port, there *sync.WaitGroup) {
	conn, err := at.dial()
	if err != nil {
		g.ended(k, "", "", err)
		return
	}
	if g.sealed(at) && k.to != sealed {
		conn = tls.Client(conn, g.own)
	}
	v := &visit{conn, at, &g.knows}
	until := time.Now().Add(patience)
	_ = v.SetDeadline(until)
	if k.says != nil {
		err = k.says(v)
	}
	if err != nil && !cut(err) {
		g.ended(k, "", "", err)
		_ = v.Close() // it has failed
		return
	}
	switch k.then {
	case goes:
		_ = v.Close() // it may be closed
		g.ended(k, "went", "", nil)
	case waits:
		said, err := v.outcome(until)
		_ = v.Close()
		g.ended(k, "was shut out", said, err)
	case stays:
		there.Go(func() {
			end := "was thrown out"
			stop := context.AfterFunc(ctx, func() { _ = v.SetReadDeadline(time.Now()) })
			said, err := v.outcome(until)
			if !stop() && errors.Is(err, os.ErrDeadlineExceeded) {
				end, err = "stayed to the end", nil
			}
			_ = v.Close()
			g.ended(k, end, said, err)
		})
	}
}

// cut reports whether an error is that the other side has ended the connection.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// lay has so many visits of kinds of strangers made at ports, some at a time.
func (g *siege) lay(ctx context.Context, n int, kinds []stranger, ports []port, there *sync.WaitGroup) {
	type pair struct {
		stranger
		port
	}
	var pairs []pair
	for m := range ports {
		for i, k := range kinds {
			at := ports[(i+m)%len(ports)]
			if k.to == anywhere || (k.to == sealed) == g.sealed(at) {
				pairs = append(pairs, pair{k, at})
			}
		}
	}
	next := make(chan pair)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for x := range next {
				g.visit(ctx, x.stranger, x.port, there)
			}
		})
	}
	for i := 0; i < n && len(pairs) > 0; i++ {
		next <- pairs[i%len(pairs)]
	}
	close(next)
	all.Wait()
}

// those lists the kinds of strangers that do something in the end.
func those(do after) (out []stranger) {
	for _, k := range strangers() {
		if k.then == do {
			out = append(out, k)
		}
	}
	return out
}

// report says how many visits of each kind there were, and how they ended.
func (g *siege) report() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d connections:\n", g.made)
	for _, name := range slices.Sorted(maps.Keys(g.counts)) {
		var ends []string
		for _, end := range slices.Sorted(maps.Keys(g.counts[name])) {
			ends = append(ends, fmt.Sprintf("%d %s", g.counts[name][end], end))
		}
		fmt.Fprintf(&b, "  %-60s %s\n", name, strings.Join(ends, ", "))
	}
	return b.String()
}

// count is how many visits there were, and whether a port was closed.
func (g *siege) count() (made int, over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made, g.over
}

// heed wants every kind that is to be told something to have been told at least once.
func (g *siege) heed(kinds []stranger) {
	for _, k := range kinds {
		if told := g.counts[k.name]["was told why"]; told == 0 && strings.HasPrefix(k.ends, "^refused") && len(g.counts[k.name]) > 0 {
			g.t.Errorf("%s: nobody of them was told anything", k.name)
		}
	}
}

// overhear stands between an agent and its driver at an address, and hears the first
// note that the agent says. It gives where the agent is to go.
func (g *siege) overhear(driver string) (at string, first chan []byte) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	g.cleanup(ln)
	first = make(chan []byte, 1)
	go func() {
		near, err := ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", driver)
		if err != nil {
			near.Close()
			return
		}
		g.cleanup(near, far)
		go func() {
			_, _ = io.Copy(near, far) // whoever ends it
			near.Close()
		}()
		n, err := heard(near)
		if err == nil {
			first <- told(n)
			_, err = far.Write(told(n))
		}
		if err == nil {
			_, _ = io.Copy(far, near) // as above
		}
		far.Close()
	}()
	return ln.Addr().String(), first
}

func (g *siege) cleanup(all ...io.Closer) {
	g.t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close() // it may be closed
		}
	})
}
