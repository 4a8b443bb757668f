//go:build !unix

package procs

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/lockstep-ml/lockstep/core/launch"
)

// errSystem is what asking for processes leads to here: ranks reach each other by system
// calls that this system has not.
var errSystem = errors.New("ranks as processes: not on this system, needs a Unix one")

// Team would be a driver with its agents.
type Team struct{}

// Start gives an error.
func Start(context.Context, Options) (*Team, error) { return nil, errSystem }

// Run gives an error.
func (*Team) Run(context.Context, Task) (*launch.Outcome, error) { return nil, errSystem }

// Over gives an error.
func (*Team) Over() error { return errSystem }

// Hosts gives none.
func (*Team) Hosts() []string { return nil }

// Here is none.
func (*Team) Here() int { return 0 }

// Dir gives an error.
func (*Team) Dir() (string, error) { return "", errSystem }

// Links are none.
func (*Team) Links() []string { return nil }

// Close has nothing to end.
func (*Team) Close(int) {}

// Work would do a task.
type Work func(context.Context, *Job) (*launch.Outcome, error)

// Job would be a task at an agent.
type Job struct {
	What json.RawMessage
	Dir  string
}

// Join changes nothing.
func (*Job) Join(*launch.Parts, string) {}

// Stream changes nothing.
func (*Job) Stream(*launch.Parts) {}

// Number is the only one.
func (*Job) Number() int { return 0 }

// First reports that there is no other.
func (*Job) First() bool { return true }

// Meet gives an error.
func (*Job) Meet(context.Context, error) error { return errSystem }

// Carrier would be what carries links.
type Carrier any

// Server would be a seat.
type Server interface {
	Serve(context.Context, string, Work) (int, error)
}

// Serve gives an error.
func (*Found) Serve(context.Context, string, Work) (int, error) { return 0, errSystem }

// Serve gives an error.
func (*Seat) Serve(context.Context, string, Work) (int, error) { return 0, errSystem }
