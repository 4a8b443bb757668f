// Package contracts holds the list of contracts and drives them: Verify runs
// and judges their cases, JudgeHistories judges recorded runs, SelfTest proves
// that every clause can fail.
package contracts

import (
	"fmt"
	"strings"

	ckpt "github.com/lockstep-ml/lockstep/contracts/ckpt/suite"
	collective "github.com/lockstep-ml/lockstep/contracts/collective/suite"
	data "github.com/lockstep-ml/lockstep/contracts/data/suite"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	det "github.com/lockstep-ml/lockstep/contracts/det/suite"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	kern "github.com/lockstep-ml/lockstep/contracts/kern/suite"
	norm "github.com/lockstep-ml/lockstep/contracts/norm/suite"
	order "github.com/lockstep-ml/lockstep/contracts/order/suite"
	pipe "github.com/lockstep-ml/lockstep/contracts/pipe/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	tp "github.com/lockstep-ml/lockstep/contracts/tp/suite"
	zero "github.com/lockstep-ml/lockstep/contracts/zero/suite"
)

// All lists the contracts, in the order of reports.
func All() []*suite.Suite {
	return []*suite.Suite{ddp.Suite(), zero.Suite(), tp.Suite(), pipe.Suite(), norm.Suite(), formulas.Suite(), data.Suite(), ckpt.Suite(), det.Suite(), collective.Suite(), kern.Suite(), order.Suite()}
}

// Find returns the contract of an ID, letter case ignored. The error names the
// known ones.
func Find(id string) (*suite.Suite, error) {
	all := All()
	var known []string
	for _, c := range all {
		if strings.EqualFold(c.ID, id) {
			return c, nil
		}
		known = append(known, c.ID)
	}
	return nil, fmt.Errorf("contract %q: known are %s", id, strings.Join(known, ", "))
}
