//go:build !unix

package cli

import "io/fs"

// private cannot be seen here; ranks as processes need a Unix system anyway.
func private(fs.FileInfo) error { return nil }
