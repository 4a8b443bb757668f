// Package protocol is what the ranks of a group tell each other about an operation,
// whatever carries it: calls and how they fit, what failures say, and the form of both
// between processes.
package protocol
