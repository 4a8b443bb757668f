// Package pipeline holds the property suite of pipeline parallelism, C-PIPE-001:
// random models and schedules against one worker, and the schedules themselves.
package pipeline
