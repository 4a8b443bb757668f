//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestContextEndsOnSignal(t *testing.T) {
	ctx, stop := Context()
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context outlives SIGTERM")
	}
}
