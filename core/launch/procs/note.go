//go:build unix

package procs

import (
	"encoding/json"
	"time"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// note is what driver and agents tell each other.
type note struct {
	Kind string `json:"kind"`
	Task int    `json:"task,omitempty"`

	What     json.RawMessage `json:"what,omitempty"`     // of noteTask
	Dir      string          `json:"dir,omitempty"`      // of noteTask
	World    int             `json:"world,omitempty"`    // which world of the task, of noteOpen
	Addr     string          `json:"addr,omitempty"`     // where its rank 0 listens
	Bytes    int64           `json:"bytes,omitempty"`    // of a log, which follows
	Progress *progress       `json:"progress,omitempty"` // of noteProgress
	Step     int             `json:"step,omitempty"`     // of noteAsk, noteAnswer and noteMeet
	Stop     bool            `json:"stop,omitempty"`     // of noteAnswer
	End      *ended          `json:"end,omitempty"`      // of noteDone
	Text     string          `json:"text,omitempty"`     // of noteCancel, noteFailed, noteMeet and noteUnfit: what is wrong
	Code     int             `json:"code,omitempty"`     // of noteEnd
	Crew     *crew           `json:"crew,omitempty"`     // of noteCrew
}

// Kinds of notes.
const (
	noteCrew   = "crew"   // to agents: all have come
	noteTask   = "task"   // to agents: do this
	noteCancel = "cancel" // to agents: do it no longer
	noteFailed = "failed" // to agents: one's part of it has gone wrong, and who waits for its ranks to come waits for nothing
	noteOpen   = "open"   // rank 0 of a world listens: to the driver, and from it to all others
	noteAnswer = "answer" // to an agent: whether the run ends after a step
	noteEnd    = "end"    // to agents: end with this exit code
	noteMeet   = "meet"   // to the driver: I am at meeting number Step; to agents: all are

	noteBeat     = "beat"     // to the driver, and from it: I live
	noteLog      = "log"      // to the driver, with what a rank recorded
	noteProgress = "progress" // to the driver: a step is done
	noteAsk      = "ask"      // to the driver: does the run end after this step?
	noteUnfit    = "unfit"    // to the driver: I cannot be one of them, for a reason
	noteDone     = "done"     // to the driver: a task is done
)

// crew is what an agent is told of all of them.
type crew struct {
	// Run names this run of theirs, and no other.
	Run string `json:"run"`
	// Here is how many agents its host has, Hosts how many hosts there are.
	Here  int `json:"here"`
	Hosts int `json:"hosts"`
	// Probe is a file that is in every directory that all have in common.
	Probe string `json:"probe,omitempty"`
}

// sums reports whether what ranks send each other carries checksums: on its way between
// hosts it may change.
func (c *crew) sums() bool { return c.Hosts > 1 }

// progress is train.Progress as JSON, in which a loss may be no number.
type progress struct {
	Step, Steps int
	Loss, Norm  trace.Float
	LR          float64
	Tokens      int64
	Elapsed     time.Duration
	Skipped     bool
}

func sayProgress(p train.Progress) *progress {
	return &progress{p.Step, p.Steps, trace.Float(p.Loss), trace.Float(p.Norm), p.LR, p.Tokens, p.Elapsed, p.Skipped}
}

func (p *progress) said() train.Progress {
	return train.Progress{Step: p.Step, Steps: p.Steps, Loss: float64(p.Loss), Norm: float64(p.Norm), LR: p.LR, Tokens: p.Tokens,
		Elapsed: p.Elapsed, Skipped: p.Skipped}
}

// ended is what a task came to in an agent.
type ended struct {
	// Text is the error, empty where there was none; Rank is whose, or -1, and Because
	// the rank that it is a consequence of, or -1.
	Text    string `json:"text,omitempty"`
	Rank    int    `json:"rank"`
	Because int    `json:"because"`
	// Links are the ways by which the agent's ranks have reached others.
	Links []string `json:"links,omitempty"`
}
