package commtest_test

import (
	"context"
	"errors"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// defect is a named mutant and the checks that must catch it.
type defect struct {
	name   string
	f      func(m *mutant) overrides
	checks []string
}

// defects lists all mutants.
func defects() []defect {
	return slices.Concat(reduceDefects(), moveDefects(), groupDefects(), failureDefects())
}

// reduceDefects are reductions gone wrong.
func reduceDefects() []defect {
	return []defect{
		{"one rank keeps its input once", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if m.calls++; m.calls == 20 && m.Rank() == 1 {
					x = clone(x)
				}
				return m.Communicator.AllReduce(ctx, x, op)
			}}
		}, []string{"results", "stream"}},
		{"a result of an earlier call", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				err := m.Communicator.AllReduce(ctx, x, op)
				if m.calls++; m.calls > 20 && len(m.last) == x.Len() {
					write(x, m.last...)
				} else {
					m.last = read(x)
				}
				return err
			}}
		}, []string{"results", "stream"}},
		{"an element that does not take part", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if m.Rank() == 1 && x.Len() > 0 {
					write(x.Range(0, 1), 0)
				}
				return m.Communicator.AllReduce(ctx, x, op)
			}}
		}, []string{"results", "stream"}},
		{"sums that start at +0", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				err := m.Communicator.AllReduce(ctx, x, op)
				v := read(x)
				for i := range v {
					v[i] += 0
				}
				write(x, v...)
				return err
			}}
		}, []string{"results"}},
		{"the last element is dropped", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				return m.Communicator.AllReduce(ctx, x.Range(0, max(x.Len()-1, 0)), op)
			}}
		}, []string{"results", "stream"}},
		{"chunk r+1 on rank r", func(m *mutant) overrides {
			return overrides{reduceScatter: func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
				all := clone(src)
				if err := m.Communicator.AllReduce(ctx, all, op); err != nil {
					return err
				}
				bounds, err := shard.CheckBounds(bounds, src.Len(), m.Size())
				lo := bounds[(m.Rank()+1)%m.Size()]
				write(dst, read(all.Range(min(lo, src.Len()-dst.Len()), min(lo, src.Len()-dst.Len())+dst.Len()))...)
				return err
			}}
		}, []string{"results"}},
	}
}

// moveDefects are elements in the wrong place.
func moveDefects() []defect {
	return []defect{
		{"bounds are ignored", func(m *mutant) overrides {
			return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				if err := m.Communicator.AllGather(ctx, dst, src, bounds); err != nil || bounds == nil {
					return err
				}
				v := read(dst)
				slices.Reverse(v)
				write(dst, v...)
				return nil
			}}
		}, []string{"results"}},
		// Sizes are divided by the smallest share (pytorch/pytorch#85234).
		{"a share without elements breaks it down", func(m *mutant) overrides {
			return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				if bounds, err := shard.CheckBounds(bounds, dst.Len(), m.Size()); err == nil {
					least := dst.Len()
					for i := range m.Size() {
						least = min(least, bounds[i+1]-bounds[i])
					}
					_ = dst.Len() / least
				}
				return m.Communicator.AllGather(ctx, dst, src, bounds)
			}}
		}, []string{"results"}},
		{"nothing is reduced where there is nothing, without the others", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				if m.Rank() == 1 && x.Len() == 0 {
					return nil
				}
				return m.Communicator.AllReduce(ctx, x, op)
			}}
		}, []string{"results"}},
		{"one element too many is written", func(m *mutant) overrides {
			return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				err := m.Communicator.AllGather(ctx, dst, src, bounds)
				if end := dst.Off + dst.Len(); end < dst.Buf.Len() {
					write(kernels.Flat(dst.Buf).Range(end, end+1), 0)
				}
				return err
			}}
		}, []string{"results"}},
		{"the source is scaled", func(m *mutant) overrides {
			return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				err := m.Communicator.AllGather(ctx, dst, src, bounds)
				if src.Len() > 0 {
					write(src.Range(0, 1), 99)
				}
				return err
			}}
		}, []string{"sources"}},
		{"another root", func(m *mutant) overrides {
			return overrides{broadcast: func(ctx context.Context, x kernels.Tensor, root int) error {
				if root == 2 {
					root = 1
				}
				return m.Communicator.Broadcast(ctx, x, root)
			}}
		}, []string{"results", "sources"}},
		{"messages overtake each other", func(m *mutant) overrides {
			return overrides{send: func(ctx context.Context, x kernels.Tensor, to int) error {
				if x.Len() != 1 || m.Rank() != 0 || to != 1 {
					return m.Communicator.Send(ctx, x, to)
				}
				if m.calls++; m.calls%2 == 1 {
					v := read(x)[0]
					m.held = &v
					return nil
				}
				first := clone(x)
				write(first, *m.held)
				return errors.Join(m.Communicator.Send(ctx, x, to), m.Communicator.Send(ctx, first, to))
			}}
		}, []string{"results"}},
		{"a barrier that does not wait", func(m *mutant) overrides {
			return overrides{barrier: func(context.Context) error { return nil }}
		}, []string{"barrier"}},
	}
}

// groupDefects concern order and groups.
func groupDefects() []defect {
	return []defect{
		{"integers are added for a maximum", func(m *mutant) overrides {
			return overrides{ints: func(ctx context.Context, x []uint64, _ kernels.Op) error {
				return m.Communicator.AllReduceInt(ctx, x, kernels.Sum)
			}}
		}, []string{"results"}},
		{"bytes in another order", func(m *mutant) overrides {
			return overrides{gatherBytes: func(ctx context.Context, b []byte) ([][]byte, error) {
				all, err := m.Communicator.AllGatherBytes(ctx, b)
				slices.Reverse(all)
				return all, err
			}}
		}, []string{"results"}},
		{"keys are ignored", func(m *mutant) overrides {
			return overrides{split: func(ctx context.Context, color, _ int) (comm.Communicator, error) {
				return m.Communicator.Split(ctx, color, 0)
			}}
		}, []string{"results"}},
		{"a negative color joins a group", func(m *mutant) overrides {
			return overrides{split: func(ctx context.Context, color, key int) (comm.Communicator, error) {
				return m.Communicator.Split(ctx, max(color, 0), key)
			}}
		}, []string{"results"}},
		{"keys are ignored below the first level", func(m *mutant) overrides {
			return overrides{split: func(ctx context.Context, color, key int) (comm.Communicator, error) {
				g, err := m.Communicator.Split(ctx, color, key)
				if g == nil {
					return nil, err
				}
				return &mutant{Communicator: g, f: func(inner *mutant) overrides {
					return overrides{split: func(ctx context.Context, color, _ int) (comm.Communicator, error) {
						return inner.Communicator.Split(ctx, color, 0)
					}}
				}}, err
			}}
		}, []string{"nested splits"}},
		{"a duplicate is the group itself", func(m *mutant) overrides {
			return overrides{split: func(context.Context, int, int) (comm.Communicator, error) { return m.Communicator, nil }}
		}, []string{"duplicates overlap"}},
	}
}

// failureDefects hide failures, or invent them.
func failureDefects() []defect {
	return []defect{
		// The elements that lie first in memory are taken (pytorch/pytorch#192920).
		{"strides are ignored", func(m *mutant) overrides {
			return overrides{allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				return m.Communicator.AllReduce(ctx, kernels.Flat(x.Buf).Range(x.Off, x.Off+x.Len()), op)
			}}
		}, []string{"arguments"}},
		{"errors are swallowed", func(m *mutant) overrides {
			return overrides{
				barrier: func(ctx context.Context) error { _ = m.Communicator.Barrier(ctx); return nil },
				allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
					_ = m.Communicator.AllReduce(ctx, x, op)
					return nil
				},
			}
		}, []string{"arguments", "mismatch", "closed peer", "cancelled peer", "failure spreads"}},
		{"a mismatch of bounds is served", func(m *mutant) overrides {
			return overrides{allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				own := shard.Part{Index: m.Rank(), Size: m.Size()}.Of(dst.Len())
				if src.Len() == own.Len() {
					bounds = nil
				}
				return m.Communicator.AllGather(ctx, dst, src, bounds)
			}}
		}, []string{"misfits"}},
		{"a longer message is cut", func(m *mutant) overrides {
			return overrides{send: func(ctx context.Context, x kernels.Tensor, to int) error {
				if x.Len() > 24 {
					x = x.Range(0, 24)
				}
				return m.Communicator.Send(ctx, x, to)
			}}
		}, []string{"misfits"}},
		{"errors of another type", func(m *mutant) overrides {
			return overrides{barrier: func(ctx context.Context) error {
				if err := m.Communicator.Barrier(ctx); err != nil {
					return errors.New(err.Error())
				}
				return nil
			}}
		}, []string{"arguments", "mismatch", "closed peer", "cancelled peer"}},
		{"closing is not told", func(m *mutant) overrides {
			return overrides{closeGroup: func() error { return nil }}
		}, []string{"closed peer"}},
		{"contexts are ignored", func(m *mutant) overrides {
			return overrides{
				barrier: func(context.Context) error { return m.Communicator.Barrier(context.Background()) },
				allReduce: func(_ context.Context, x kernels.Tensor, op kernels.Op) error {
					return m.Communicator.AllReduce(context.Background(), x, op)
				},
			}
		}, []string{"cancelled peer"}},
		{"closing twice is an error", func(m *mutant) overrides {
			return overrides{closeGroup: func() error {
				if m.calls++; m.Communicator.Close() != nil || m.calls > 0 {
					return errors.New("closed")
				}
				return nil
			}}
		}, []string{"quiet close"}},
	}
}
