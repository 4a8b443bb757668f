package main

import (
	"os"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

func main() {
	ctx, stop := cli.Context()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
