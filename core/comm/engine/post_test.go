//go:build unix

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// posting is a link that sends what it posts only after a while: by then it has what the
// payload has become.
type posting struct {
	Link
	late    [][2][]byte // headers and payloads that are to be sent
	done    int         // of the first one
	looks   int         // at what is owed, since it was posted
	posts   int
	revoked int
}

func (p *posting) Post(header, payload []byte) (int, error) {
	if len(payload) < 8 {
		return 0, nil
	}
	p.late = append(p.late, [2][]byte{bytes.Clone(header), payload})
	p.posts++
	return len(header) + len(payload), nil
}

// Write keeps the order.
func (p *posting) Write(header, payload []byte, done int) (int, error) {
	if len(p.late) > 0 {
		return 0, nil
	}
	return p.Link.Write(header, payload, done)
}

func (p *posting) Owed() (int, error) {
	const patience = 3
	if p.looks++; len(p.late) == 0 || p.looks < patience {
		return len(p.late), nil
	}
	x := p.late[0]
	n, err := p.Link.Write(x[0], x[1], p.done)
	if p.done += n; err == nil && p.done == len(x[0])+len(x[1]) {
		p.late, p.done, p.looks = p.late[1:], 0, 0
	}
	return len(p.late), err
}

func (p *posting) Revoke() { p.revoked++ }

func (p *posting) Wait(read, write bool) (fd int, events int16, ready bool) {
	fd, events, ready = p.Link.Wait(read, write || len(p.late) > 0)
	return fd, events, ready || len(p.late) > 0
}

// What is posted stays as it is until it is read, and an operation lasts until all is: in
// every algorithm, on a rank that posts all.
func TestPosts(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		for size := 2; size < 5; size++ {
			for who := range size {
				var all []*posting
				var mu sync.Mutex
				ends := through(t, size, who, comm.Options{Algorithm: algo, Deadline: 20 * time.Second}, func(l Link) Link {
					mu.Lock()
					defer mu.Unlock()
					all = append(all, &posting{Link: l})
					return all[len(all)-1]
				})
				for r, err := range each(ends, func(c comm.Communicator) error { return errors.Join(sums(c, 1), sums(c, 5*chunkOfTwo+5), moves(c)) }) {
					if err != nil {
						t.Errorf("%s of %d ranks, %d posts, rank %d: %v", algo, size, who, r, err)
					}
				}
				posts := 0
				for _, l := range all {
					if posts += l.posts; len(l.late) > 0 || l.revoked > 0 {
						t.Errorf("%s of %d ranks: %d payloads are not read, %d were revoked", algo, size, len(l.late), l.revoked)
					}
				}
				if posts == 0 && (size > 2 || algo != names.Tree) {
					t.Errorf("%s of %d ranks: nothing was posted", algo, size)
				}
			}
		}
	}
}

// moves broadcasts, gathers and sends: each rank's vector, which it overwrites afterwards.
func moves(c comm.Communicator) error {
	ctx, n, m := context.Background(), 3*chunkOfTwo, commtest.Memory{}
	is := func(x kernels.Tensor, want float32) error {
		got := make([]float32, x.Len())
		if err := m.Read(got, x); err != nil {
			return err
		}
		for i, v := range got {
			if v != want {
				return fmt.Errorf("rank %d: element %d of %d is %v, want %v", c.Rank(), i, len(got), v, want)
			}
		}
		return nil
	}
	for root := range c.Size() {
		x := filled(n, float32(c.Rank()))
		if err := errors.Join(c.Broadcast(ctx, x, root), is(x, float32(root))); err != nil {
			return err
		}
		next := (root + 1) % c.Size()
		var err error
		switch c.Rank() {
		case root:
			err = c.Send(ctx, x, next)
		case next:
			m.Write(x, bytes1(n, -1))
			err = errors.Join(c.Recv(ctx, x, root), is(x, float32(root)))
		}
		if m.Write(x, bytes1(n, -2)); err != nil {
			return err
		}
	}
	all, bounds := filled(n*c.Size(), -1), make([]int, c.Size()+1)
	for r := range bounds {
		bounds[r] = n * r
	}
	own := filled(n, float32(c.Rank()))
	if err := c.AllGather(ctx, all, own, bounds); err != nil {
		return err
	}
	for r := range c.Size() {
		if err := is(all.Range(bounds[r], bounds[r+1]), float32(r)); err != nil {
			return err
		}
	}
	return nil
}
