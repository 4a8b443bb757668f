//go:build cuda

package gpu

import (
	"time"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Event is a point in the work of a stream, which others can wait for. Before it is first
// recorded it counts as having happened.
type Event struct {
	dev *Device
	e   cu.Event
	h   drv.Event
}

// NewEvent makes an event. One that is timed can be asked for the time between it and
// another, and costs more.
func (d *Device) NewEvent(timed bool) (*Event, error) {
	e := &Event{dev: d}
	flags := cu.DisableTiming
	if timed {
		flags = cu.DefaultEvent
	}
	err := d.in(func() (err error) {
		e.e, err = cu.MakeEvent(flags)
		return err
	})
	if err != nil {
		return nil, d.fail(err, "cuEventCreate")
	}
	e.h = drv.Event(handle(e.e))
	d.live.events.Add(1)
	return e, nil
}

// Close ends the event. It is called once.
func (e *Event) Close() error {
	e.dev.live.events.Add(-1)
	return e.dev.fail(e.dev.in(func() error { return cu.DestroyEvent(&e.e) }), "cuEventDestroy")
}

// Record lets the event happen when the work that the stream has been given is done. Both
// are of one device.
func (s *Stream) Record(e *Event) error {
	return s.dev.fail(drv.EventRecord(s.dev.ctx, e.h, s.h), "cuEventRecord")
}

// Wait lets the work that the stream is given from now on wait for the event, as it was
// recorded last. The event may be of another device.
func (s *Stream) Wait(e *Event) error {
	return s.dev.fail(drv.StreamWait(s.dev.ctx, s.h, e.h), "cuStreamWaitEvent")
}

// Sync waits for the event.
func (e *Event) Sync() error { return e.dev.fail(drv.EventSync(e.dev.ctx, e.h), "cuEventSynchronize") }

// Happened reports whether the event has happened.
func (e *Event) Happened() (bool, error) {
	return e.dev.ready(drv.EventQuery(e.dev.ctx, e.h), "cuEventQuery")
}

// Since is the time from an earlier event to e. Both are timed, of one device, and have
// happened.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms float64
	err := e.dev.in(func() (err error) {
		ms, err = start.e.Elapsed(e.e)
		return err
	})
	return time.Duration(ms * float64(time.Millisecond)), e.dev.fail(err, "cuEventElapsedTime")
}
