// Package montest has a machine of go-nvml's mocks to which things happen, for tests of who
// looks at devices.
package montest
