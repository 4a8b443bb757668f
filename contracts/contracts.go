// Package contracts holds the list of contracts and drives them: Verify runs
// and judges their cases, JudgeHistories judges recorded runs, SelfTest proves
// that every clause can fail.
package contracts

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/commc"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/ddp"
	"github.com/lockstep-ml/lockstep/contracts/det"
	"github.com/lockstep-ml/lockstep/contracts/norm"
	"github.com/lockstep-ml/lockstep/contracts/pipe"
	"github.com/lockstep-ml/lockstep/contracts/tp"
	"github.com/lockstep-ml/lockstep/contracts/zero"
)

// All lists the contracts, in the order of reports.
func All() []*contract.Contract {
	return []*contract.Contract{ddp.Contract(), zero.Contract(), tp.Contract(), pipe.Contract(), norm.Contract(), ckpt.Contract(), det.Contract(), commc.Contract()}
}

// Find returns the contract of an ID, letter case ignored. The error names the
// known ones.
func Find(id string) (*contract.Contract, error) {
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
