// Package harness loads the simulated driver and calls its functions by name, for its
// tests alone: they see what a driver gives, without the layers above it.
package harness
