package cli

import (
	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Opened is a backend that was opened, with its devices where it has some.
type Opened struct {
	// Backend makes that of a rank.
	Backend func(rank int) (kernels.Backend, error)

	devices []gpu.Info
	sit     func() Seating // where this process is; nil is alone
	watch   func([]gpu.Info) (watcher, error)
}

// Seating is the place of this process among those that ranks are dealt over: rank r is in
// process r mod Agents. Of Here processes on its host it is number Local.
type Seating struct{ Agents, Local, Here int }

// Sit says where this process is, as soon as that is known: before the first rank has its
// backend.
func (o *Opened) Sit(where func() Seating) { o.sit = where }

// seating is where this process is.
func (o *Opened) seating() Seating {
	s := Seating{1, 0, 1}
	if o.sit != nil {
		s = o.sit()
	}
	s.Here = max(1, s.Here)
	s.Agents, s.Local = max(1, s.Agents), max(0, s.Local)%s.Here
	return s
}

// Mine are the devices of this process, by their number among those that were opened: each
// Here-th, from its own number on, so that the processes of a host share none, unless there
// are more of them than devices.
func (o *Opened) mine() []int {
	s, n := o.seating(), len(o.devices)
	if n == 0 {
		return nil
	}
	if s.Here >= n {
		return []int{s.Local % n}
	}
	var out []int
	for i := s.Local; i < n; i += s.Here {
		out = append(out, i)
	}
	return out
}

// device is the one of a rank: the ranks of a process take its devices in turn.
func (o *Opened) device(rank int) int {
	mine := o.mine()
	return mine[rank/o.seating().Agents%len(mine)]
}

// PerProcess is how many devices each of a number of processes on this host has, at most; 0
// where there are no devices.
func (o *Opened) PerProcess(here int) int {
	here = max(1, here)
	return (len(o.devices) + here - 1) / here
}

// Have is PerProcess of this process.
func (o *Opened) Have() int { return o.PerProcess(o.seating().Here) }

// Waits counts how often a rank has waited for its device; nil where there is none to wait
// for.
func (o *Opened) Waits(rank int) (func() uint64, error) {
	be, err := o.Backend(rank)
	if err != nil {
		return nil, err
	}
	if w, ok := kernels.WaiterOf(be); ok {
		return w.Waits, nil
	}
	return nil, nil
}
