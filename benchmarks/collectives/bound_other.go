//go:build !linux

package main

// processors are those that this process may use, which only Linux says here.
func processors() []int { return nil }

// bound is not: only Linux does so here.
func bound(_ int, start func() error) error { return start() }
