//go:build !unix

package files

// nonBlocking is for systems with named pipes among the files.
const nonBlocking = 0
