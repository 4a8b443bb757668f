package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
)

// list prints contracts with their clauses.
func list(w io.Writer, cs []*suite.Suite) (int, error) {
	var b strings.Builder
	for _, c := range cs {
		fmt.Fprintf(&b, "%s  %s\n", c.ID, c.Title)
		for _, cl := range c.Clauses {
			fmt.Fprintf(&b, "  %s  %-7s  %s\n", cl.ID, cl.Class, cl.Says)
		}
	}
	_, err := io.WriteString(w, b.String())
	return cli.OK, err
}

// explain prints all that a contract says about itself, or what a fault is. A
// clause's ID names its contract.
func explain(ctx context.Context, w io.Writer, id string) (int, error) {
	contractID, _, _ := strings.Cut(id, ".")
	c, err := contracts.Find(contractID)
	if err != nil {
		if strings.Contains(id, ":") {
			return explainGenerated(ctx, w, id)
		}
		found, ferr := contracts.FindFaults(contracts.All(), id)
		if ferr != nil {
			return cli.Usage, cli.AsUsage(fmt.Errorf("%w; %w", err, ferr))
		}
		return explainFaults(w, found)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n\n%s\n\n%s\n\nClauses\n", c.ID, c.Title, c.Statement, strings.TrimSpace(c.Doc))
	for _, cl := range c.Clauses {
		fmt.Fprintf(&b, "\n  %s  (%s)  %s\n    evidence: %s\n", cl.ID, cl.Class, cl.Says, cl.Reads)
		if cl.Derivation != "" {
			fmt.Fprintf(&b, "    bound: %s\n", cl.Derivation)
		}
		for _, m := range c.Mutants {
			if m.Clause == cl.ID {
				fmt.Fprintf(&b, "    falsified by %s, on %s: %s\n", m.ID, m.On, m.Says)
			}
		}
	}
	fmt.Fprintf(&b, "\nCheck it: verify --contract %s\nSee it fail: verify --contract %s --self-test\n", c.ID, c.ID)
	_, err = io.WriteString(w, b.String())
	return cli.OK, err
}

// explainFaults prints what faults break, where they must be named, and who sees
// them.
func explainFaults(w io.Writer, found []contracts.Fault) (int, error) {
	var b strings.Builder
	for i, f := range found {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s\n\n%s\n\n  breaks         the case %s of %s\n", f.ID, f.Says, f.On, f.Contract)
		if len(f.Rows) > 0 {
			fmt.Fprintf(&b, "  stands for     %s of the catalogue of public bugs\n", strings.Join(f.Rows, ", "))
		}
		fmt.Fprintf(&b, "  must be named  by %s at %s\n  is seen by     %s\n", f.Clause, f.At, contracts.SeenBy(f.FaultID()))
		fmt.Fprintf(&b, "\nRun it: verify --self-test --faults %s\n", f.FaultID())
	}
	_, err := io.WriteString(w, b.String())
	return cli.OK, err
}

// explainGenerated prints what a generated fault breaks.
func explainGenerated(ctx context.Context, w io.Writer, id string) (int, error) {
	open, err := cli.OpenBackend(cli.DefaultBackend, cli.Devices{})
	if err != nil {
		return cli.CannotRun, err
	}
	g, err := contracts.FindGenerated(ctx, launch.Parts{Backend: open}, id)
	if err != nil {
		return cli.Usage, cli.AsUsage(err)
	}
	_, err = fmt.Fprintf(w, `%s

%s

  breaks         a generated run of %s on %s, on all ranks where it names none
  must be named  by any exact clause of any contract but for the golden hash's

Run it: verify --self-test --faults %s
`, g.ID, g.Says, g.Config.Model.Name, g.Config.Plan, g.ID)
	return cli.OK, err
}
