package contracts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// dropping is a backend with a kernel that panics.
type dropping struct{ kernels.Backend }

func (dropping) SwiGLU(h, _, _ kernels.Tensor) { _ = []int{}[h.Rows] }

// A rank that breaks down, or leaves out an operation, leaves its contract without a
// verdict and is named at once; other contracts' verdicts stand.
func TestBrokenRankLeavesOtherContracts(t *testing.T) {
	norm := func(c *fault.Call) bool { return c.Rank == 1 && c.N == 1 && fault.Norms(c) }
	send := func(c *fault.Call) bool {
		return c.Rank == 1 && c.N == 1 && c.Op == names.OpAllReduce && c.Label.Overlap
	}
	for says, f := range map[string]fault.Fault{
		"rank 1: step 0: Forward of micro-batch 0, chunk 0: panic: runtime error: index out of range [": fault.OnBackend(1, func(be kernels.Backend) kernels.Backend { return dropping{be} }),
		"rank 1 did not come to all-reduce-int of norm":                                                 fault.OnCalls(norm, fault.Skip),
		"rank 1 did not come to all-reduce of ":                                                         fault.OnCalls(send, fault.Skip),
	} {
		broken := ddp.Suite()
		inner := broken.Cases
		broken.Cases = func(o suite.Options) []suite.Case {
			out := slices.DeleteFunc(inner(o), func(c suite.Case) bool { return c.Name != "nano dp=4" })
			for i := range out {
				r := out[i].Runs[contract.Test]
				r.Key, r.Parts = "", func(p *launch.Parts) { f(p) }
				out[i].Runs[contract.Test] = r
			}
			return out
		}
		o := full()
		o.Parts.Deadline = time.Hour
		begun := time.Now()
		r, err := o.verify(t.Context(), []*suite.Suite{broken, (&toy{}).contract()})
		if err == nil || !strings.Contains(err.Error(), says) || time.Since(begun) > 20*time.Second {
			t.Fatalf("after %v: error %v, want %q", time.Since(begun), err, says)
		}
		if len(r.Contracts) != 2 || r.Contracts[1].Verdict != contract.Held {
			t.Errorf("%s: another contract: %+v", says, r.Contracts)
		}
		if v := r.Contracts[0].Verdict; v == contract.Held {
			t.Errorf("%s: the broken run's contract is %s", says, v)
		}
		for _, cl := range r.Contracts[0].Clauses {
			if !has(cl.Doubts[:1], says) {
				t.Errorf("%s: %s does not say so first: %v", says, cl.ID, cl.Doubts)
			}
		}
	}
}
