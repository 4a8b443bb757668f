//go:build cuda

package gpu

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestOneThread: what runs in a device's context stays on the thread that has it, although it
// lets other goroutines run again and again.
func TestOneThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	a, b := devices(t)
	stays := func() error {
		first := syscall.Gettid()
		for range 100 {
			runtime.Gosched()
			if now := syscall.Gettid(); now != first {
				t.Errorf("the thread was %d and is %d", first, now)
				break
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			if err := []*Device{a, b}[g%2].in(stays); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
