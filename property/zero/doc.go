// Package zero holds the property suite of ZeRO, C-ZERO-001: random models, plans
// and forms of sharding against unsharded training, and the cuts themselves.
package zero
