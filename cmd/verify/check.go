package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
)

// formats are the report formats with the files that hold them.
func formats() map[string]string {
	return map[string]string{"text": "report.txt", "json": "report.json", "junit": "report.xml"}
}

// check refuses flag values that are wrong by themselves or together; what
// depends on models and texts the driver checks.
func (o *options) check(flags *pflag.FlagSet) error {
	var names []string
	for _, f := range o.formats {
		if formats()[f] == "" {
			return cli.Usagef("format %q: known are text, json, junit", f)
		}
		if !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	o.formats = names
	o.plans = splitPlans(o.plans)
	switch given := flags.Changed; {
	case len(o.formats) == 0:
		return cli.Usagef("format: none is named; known are text, json, junit")
	case len(o.formats) > 1 && o.out == "":
		return cli.Usagef("format %s: several formats need --out DIR", strings.Join(o.formats, ","))
	case given("out") && o.out == "":
		return cli.Usagef("out: names no directory")
	case given("history") && (len(o.histories) == 0 || slices.Contains(o.histories, "")):
		return cli.Usagef("history: names no directory")
	case given("data") && o.data == "":
		return cli.Usagef("data: names no file")
	case given("config") && o.config == "":
		return cli.Usagef("config: names no configuration")
	case given("plan") && len(o.plans) == 0:
		return cli.Usagef("plan: names no plan")
	case given("steps") && o.steps < 1:
		return cli.Usagef("steps=%d: must be at least 1", o.steps)
	case given("seed") && o.seed < 1:
		return cli.Usagef("seed=%d: must be at least 1", o.seed)
	case o.level < 1 || o.level > 3:
		return cli.Usagef("level=%d: must be from 1 to 3", o.level)
	case given("expect-ranks") && o.expectRanks < 1:
		return cli.Usagef("expect-ranks=%d: must be at least 1", o.expectRanks)
	case given("expect-ranks") && len(o.histories) == 0:
		return cli.Usagef("expect-ranks=%d: only histories (--history DIR) can lack ranks", o.expectRanks)
	case given("faults") && !o.selfTest:
		return cli.Usagef("faults=%s: belongs to --self-test", strings.Join(o.faults, ","))
	case given("faults") && len(o.faults) == 0:
		return cli.Usagef("faults: none is named; known are default, all and IDs")
	case given("case") && o.name == "":
		return cli.Usagef("case: names no case")
	case o.deadline <= 0:
		return cli.Usagef("deadline=%s: must be positive", o.deadline)
	case given("timeout") && o.timeout <= 0:
		return cli.Usagef("timeout=%s: must be positive", o.timeout)
	}
	if err := o.devices.Check(flags, o.backend); err != nil {
		return err
	}
	if err := o.checkPlacement(flags); err != nil {
		return err
	}
	return o.checkDuration(flags.Changed("duration"))
}

// checkPlacement refuses what cannot be done with ranks in other processes.
func (o *options) checkPlacement(flags *pflag.FlagSet) error {
	if err := o.placed.Check(flags); err != nil || !o.placed.Apart() {
		return err
	}
	for _, f := range o.faults {
		if o.selfTest && contracts.Generated(f) {
			return cli.Usagef("faults=%s: generated faults are made of runs in one process, and --launch is %s", f, cli.Processes)
		}
	}
	return nil
}

func (o *options) checkDuration(given bool) error {
	switch {
	case !given:
		return nil
	case o.duration < time.Second:
		return cli.Usagef("duration=%s: must be at least 1s", o.duration)
	case o.level != 3:
		return cli.Usagef("duration=%s: belongs to --level 3, the soak; level is %d", o.duration, o.level)
	}
	return nil
}

// splitPlans separates plans that stand in one flag. Commas belong to a plan.
func splitPlans(in []string) []string {
	var out []string
	for _, s := range in {
		out = append(out, strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ' ' || r == '\t' || r == '\n' })...)
	}
	return out
}
