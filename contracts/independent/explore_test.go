package independent_test

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestExplore(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	for _, name := range strings.Split(os.Getenv("EXPLORE"), ",") {
		c := preset(t, name, nil)
		r := record(t, c)
		for _, set := range []string{
			"x dx mid dmid q k v dq dk dv dmlp dattn dnorm",
			"x dx mid dmid q k v attention gate up dattention dq dk dv dgate dup dmlp dattn dnorm",
			"x dx mid dmid q k v attention gate up dattention dq dk dv dgate dup dmlp dattn dnorm logits dlogits",
		} {
			names := strings.Fields(set)
			at := time.Now()
			grads, pinned := judgeStep(t, r, 0, r.cfg.Plan.Workers(r.cfg.Model), func(n string) bool {
				for _, x := range names {
					if n[strings.Index(n, "/")+1:] == x {
						return true
					}
				}
				return false
			})
			t.Logf("%s: %s (%v)", name, set, time.Since(at))
			t.Logf("   grads %v", grads)
			t.Logf("   pins  %v", pinned)
		}
	}
}
