package procs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Executable is the path of this program, which may have been replaced or removed
// since it was started.
func Executable() string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Identity is what two processes of one run have in common: the hash of the program and
// that of what it is to do.
func Identity(configuration ...any) (string, error) {
	f, err := os.Open(Executable())
	if err != nil {
		return "", fmt.Errorf("hash of the program: %w", err)
	}
	defer f.Close()
	program := sha256.New()
	if _, err := io.Copy(program, f); err != nil {
		return "", fmt.Errorf("hash of the program: %w", err)
	}
	said, err := json.Marshal(configuration)
	if err != nil {
		return "", fmt.Errorf("hash of the configuration: %w", err)
	}
	sum := sha256.Sum256(said)
	return fmt.Sprintf("program %.12s, configuration %.12s", hex.EncodeToString(program.Sum(nil)), hex.EncodeToString(sum[:])), nil
}
