package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// verify runs or reads, judges and writes.
func (o *options) verify(ctx context.Context, cs []*suite.Suite, stdout, stderr io.Writer) (int, error) {
	opts, err := o.driver(ctx)
	if err != nil {
		return cli.Usage, err
	}
	if len(o.histories) == 0 && !o.placed.Child() {
		if err := opts.Check(cs); err != nil {
			return cli.Usage, cli.AsUsage(err)
		}
	}
	switch seat, err := o.placed.Seat(o.deadline); {
	case err != nil:
		return cli.Usage, err
	case seat != nil:
		// Other errors of runs may be what a check wants to see.
		o.placed.Failures(stderr, "verify", func(err error) bool { return errors.As(err, new(*launch.BackendError)) })
		return o.serve(ctx, seat, opts)
	}
	release, err := o.claim()
	if err != nil {
		return cli.CannotRun, err
	}
	defer release()
	if !o.placed.Apart() {
		return o.report(ctx, cs, opts, stdout, stderr)
	}
	team, err := o.team(ctx, &opts, stderr)
	if err != nil {
		return cli.CannotRun, o.placed.Unsaid(cli.Why(ctx, err))
	}
	code := cli.CannotRun
	defer func() { team.Close(code) }()
	code, err = o.report(ctx, cs, opts, stdout, stderr)
	return code, o.placed.Ends(stderr, "verify", err)
}

// report judges and writes.
func (o *options) report(ctx context.Context, cs []*suite.Suite, opts contracts.Options, stdout, stderr io.Writer) (int, error) {
	begun := time.Now()
	line := newStatus(stderr)
	opts.Progress = line.progress()
	watched := o.watch()
	r, err := o.judged(ctx, cs, opts)
	devices, werr := watched(ctx)
	line.close()
	if wrong := new(contracts.OptionError); errors.As(err, &wrong) {
		return cli.Usage, cli.AsUsage(wrong.Err)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && (r == nil || errors.Is(err, cause)) {
		err = cli.Why(ctx, err)
	}
	if r == nil {
		return cli.CannotRun, err
	}
	r.Watch(devices...)
	err = errors.Join(err, werr)
	if len(o.histories) > 0 {
		err = errors.Join(err, o.devices.Real(r.Environment.Simulated(), "histories of "+r.Environment.Histories))
	}
	r.Seconds = time.Since(begun).Seconds()
	if o.links != nil {
		r.Environment.Transport = cli.Links(o.links()) + ", " + r.Environment.Transport
	}
	// A violation that was seen is one, whatever else went wrong.
	if err = errors.Join(err, o.write(r, stdout)); err != nil {
		if r.Verdict != contract.Violated {
			return cli.CannotRun, err
		}
		cli.Tell(stderr, "verify", err)
	}
	return exitCode(r.Verdict), nil
}

// claim holds --out and shows that the reports can be written there.
func (o *options) claim() (release func(), err error) {
	release, err = cli.Claim(o.out)
	if err != nil || o.out == "" {
		return release, err
	}
	var names []string
	for _, f := range o.formats {
		names = append(names, formats()[f])
	}
	if err = cli.FreshDir(o.out); err == nil {
		err = cli.Replaceable(o.out, names...)
	}
	for _, name := range names {
		for _, input := range append([]string{o.data, o.config}, o.histories...) {
			if path := filepath.Join(o.out, name); err == nil && cli.Same(path, input) {
				err = cli.Usagef("out: %s: a report would replace what is read from it", path)
			}
		}
	}
	if err != nil {
		release()
	}
	return release, err
}

// driver is what the flags ask of package contracts.
func (o *options) driver(ctx context.Context) (contracts.Options, error) {
	opened, err := cli.Open(o.backend, o.devices, nil)
	if err != nil {
		return contracts.Options{}, err
	}
	opened.Sit(o.placed.Seating(o.agents()))
	o.opened = opened
	world, err := cli.Transport(o.placed.Transport)
	if err != nil {
		return contracts.Options{}, err
	}
	text, err := cli.Given(ctx, o.data, o.stdin)
	if err != nil {
		return contracts.Options{}, err
	}
	opts := contracts.Options{
		Options: suite.Options{Level: o.level, Plans: o.plans, Config: o.config, Seed: o.seed, Steps: o.steps,
			Backend: o.backend, Text: text, Memory: o.placed.Memory()},
		Case: o.name, Parts: launch.Parts{Backend: opened.Backend, World: world, Deadline: o.deadline}, Texts: cli.Text, ExpectRanks: o.expectRanks, Faults: o.faults,
		Environment: report.Here(), Oracle: oracle.NewOracle(cli.Text),
	}
	opts.Chosen.Env, opts.Chosen.Flags = o.devices.Chosen(o.backend)
	opts.Environment.Command = contracts.CommandLine("verify", o.args, opts.Chosen.Env...)
	opts.Devices = opened.PerProcess(1)
	switch {
	case o.placed.Apart():
		opts.Agents = o.agents()
		opts.Devices = opened.PerProcess(opts.Agents) // unless they are on several hosts
		opts.Environment.Transport = fmt.Sprintf("processes, %d agents%s: rank r is in agent r mod %d", opts.Agents, o.placed.Source(), opts.Agents)
	case world != nil:
		opts.Transport, opts.Environment.Transport = o.placed.Transport, cli.OneProcess(o.placed.Transport)
	}
	if len(o.histories) == 0 {
		opts.Environment.Backend = o.devices.Mark(o.backend)
	}
	if strings.HasSuffix(o.config, ".json") {
		own, err := cli.Preset(o.config)
		if err != nil {
			return opts, cli.AsUsage(err)
		}
		opts.Own = &own
	}
	if o.out != "" && len(o.histories) == 0 && !o.selfTest {
		opts.Histories = filepath.Join(o.out, "histories")
	}
	return opts, nil
}

// judged makes the report in the way that the flags ask for.
func (o *options) judged(ctx context.Context, cs []*suite.Suite, opts contracts.Options) (*report.Report, error) {
	switch {
	case len(o.histories) > 0:
		return contracts.JudgeHistories(ctx, o.histories, cs, opts)
	case o.selfTest:
		return contracts.SelfTest(ctx, cs, opts)
	case o.duration > 0:
		return soak(o.duration, time.Now, func(n int) (*report.Report, error) {
			if n > 0 {
				opts.Histories = "" // those of the first repetition are kept
			}
			return contracts.Verify(ctx, cs, opts)
		})
	}
	return contracts.Verify(ctx, cs, opts)
}

// soak repeats a verification until d has passed or something is not as it
// should be; a repetition that has begun is finished. once makes repetition n.
func soak(d time.Duration, now func() time.Time, once func(n int) (*report.Report, error)) (*report.Report, error) {
	begun := now()
	sum, err := once(0)
	for n := 1; err == nil && sum.Verdict == contract.Held && now().Sub(begun) < d; n++ {
		var r *report.Report
		if r, err = once(n); r != nil {
			sum.Add(r)
		}
	}
	return sum, err
}

// write puts the report on stdout, or into files that are complete or absent.
func (o *options) write(r *report.Report, stdout io.Writer) error {
	writers := map[string]func(io.Writer) error{
		"text":  func(w io.Writer) error { return report.Text(w, r, report.TextOptions{Color: cli.Colors(w)}) },
		"json":  func(w io.Writer) error { return report.JSON(w, r) },
		"junit": func(w io.Writer) error { return report.JUnit(w, r) },
	}
	if o.out == "" {
		return writers[o.formats[0]](stdout)
	}
	for _, f := range o.formats {
		if err := trace.WriteFile(filepath.Join(o.out, formats()[f]), writers[f]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(stdout, "%s: reports in %s%c\n", r.Word(r.Verdict), o.out, os.PathSeparator)
	return err
}

// exitCode is the exit code of a verdict.
func exitCode(v contract.Verdict) int {
	switch v {
	case contract.Held:
		return cli.OK
	case contract.Violated:
		return cli.Violated
	}
	return cli.Inconclusive
}
