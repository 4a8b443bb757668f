package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/dryrun"
)

// dry prints what the plan would hold and send, and trains nothing.
func (o *options) dry(flags *pflag.FlagSet, stdout io.Writer) (int, error) {
	c, err := o.planned(flags)
	if err != nil {
		return cli.Usage, cli.AsUsage(err)
	}
	r, err := dryrun.New(c)
	if err != nil {
		return cli.Usage, cli.AsUsage(err)
	}
	if o.format == "text" {
		return cli.OK, r.Text(stdout)
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return cli.OK, enc.Encode(r)
}
