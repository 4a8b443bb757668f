//go:build unix && !linux

package shm

import (
	"errors"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// Listen gives an error: shared memory that nobody can cut off, and that is gone with
// its last process, is Linux's.
func Listen() (engine.Way, error) {
	return engine.Way{}, errors.New("shm: shared memory between ranks needs Linux")
}

// ListenOn gives the same.
func ListenOn(string) (engine.Way, error) { return Listen() }
