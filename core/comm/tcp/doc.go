// Package tcp lets ranks reach each other by TCP: goroutines of one process, processes
// of a host, or hosts. The communicator itself is package engine.
package tcp
