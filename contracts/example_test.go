package contracts_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// record trains the smallest model on a plan and saves what its ranks recorded
// below dir.
func record(dir, plans string, parts launch.Parts) error {
	cfg, err := spec.Preset("nano")
	if err != nil {
		return err
	}
	if cfg.Plan, err = plan.Parse(plans); err != nil {
		return err
	}
	cfg.Steps = 2
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
	out, err := launch.Local(context.Background(), cfg, data.Default(), parts)
	if err != nil {
		return err
	}
	return out.History.Save(filepath.Join(dir, plans))
}

// text is what every run here is trained on.
func text(string) (data.Text, error) { return data.Default(), nil }

// JudgeHistories judges runs that were recorded elsewhere. The single worker that
// a run is compared with is trained here where the directory holds none.
func ExampleJudgeHistories() {
	dir, err := os.MkdirTemp("", "histories-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	parts := launch.Parts{Backend: func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{}) }}
	if err := record(dir, "dp=4", parts); err != nil {
		fmt.Println(err)
		return
	}
	ddp, err := contracts.Find("C-DDP-001")
	if err != nil {
		fmt.Println(err)
		return
	}
	o := contracts.Options{Parts: parts, Oracle: oracle.NewOracle(text)}
	r, err := contracts.JudgeHistories(context.Background(), []string{dir}, []*suite.Suite{ddp}, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Contracts[0].ID, r.Verdict)
	for _, c := range r.Contracts[0].Clauses {
		fmt.Println(c.ID, c.Verdict)
	}
	// Output:
	// C-DDP-001 held
	// C-DDP-001.1 held
	// C-DDP-001.2 held
	// C-DDP-001.3 held
	// C-DDP-001.4 held
	// C-DDP-001.5 held
	// C-DDP-001.6 held
	// C-DDP-001.7 held
	// C-DDP-001.8 held
}
