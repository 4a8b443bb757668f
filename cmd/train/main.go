package main

import (
	"os"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Supervise(func() int {
		ctx, stop := cli.Context()
		defer stop()
		return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}))
}
