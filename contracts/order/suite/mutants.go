package suite

import "github.com/lockstep-ml/lockstep/contracts/suite"

func mutants() []suite.Mutant { return nil }
