package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/contracts"
)

// list prints the contracts with their clauses.
func list(w io.Writer) (int, error) {
	var b strings.Builder
	for _, c := range contracts.All() {
		fmt.Fprintf(&b, "%s  %s\n", c.ID, c.Title)
		for _, cl := range c.Clauses {
			fmt.Fprintf(&b, "  %s  %-7s  %s\n", cl.ID, cl.Class, cl.Says)
		}
	}
	_, err := io.WriteString(w, b.String())
	return cli.OK, err
}

// explain prints all that a contract says about itself. A clause's ID names its
// contract.
func explain(w io.Writer, id string) (int, error) {
	id, _, _ = strings.Cut(id, ".")
	c, err := contracts.Find(id)
	if err != nil {
		return cli.Usage, cli.AsUsage(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n\n%s\n\n%s\n\nClauses\n", c.ID, c.Title, c.Statement, strings.TrimSpace(c.Doc))
	for _, cl := range c.Clauses {
		fmt.Fprintf(&b, "\n  %s  (%s)  %s\n    evidence: %s\n", cl.ID, cl.Class, cl.Says, cl.Evidence)
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
