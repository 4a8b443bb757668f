package main

import (
	"os"
	"strings"
	"testing"
)

// TestMain is also the workers that tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker {
		if err := work(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(4)
		}
		return
	}
	os.Exit(m.Run())
}

// Our side answers each request of every table, however long the vector, and ends when
// there are no more.
func TestOurs(t *testing.T) {
	for _, table := range tables() {
		for _, ranks := range []int{2, 3} {
			p, err := startOurs(table.name, ranks)
			if err != nil {
				t.Errorf("%s, %d ranks: %v", table.name, ranks, err)
				continue
			}
			for _, request := range []string{"allreduce 1", "allreduce 300000", "allreduce 256"} {
				if ns, err := p.Ask(request, 3); err != nil || ns <= 0 {
					t.Errorf("%s, %d ranks, %s: %v ns, %v", table.name, ranks, request, ns, err)
				}
			}
			if _, err := p.Ask("allgather 1", 1); err == nil {
				t.Errorf("%s answered what it does not do", table.name)
			}
			p.Stop()
		}
	}
}

// What is missing is named.
func TestLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	m := &machine{options: options{python: "no-such-python"}, dir: t.TempDir()}
	for _, c := range []struct {
		other other
		want  string
	}{{openMPI("tcp"), "mpirun is not installed"}, {gloo(), "no-such-python has no torch"}} {
		if _, err := c.other.start(m, 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.other.name, err, c.want)
		}
	}
}

// A row is against the better of the others, by the ratio of neighbours.
func TestRatios(t *testing.T) {
	called := []string{"ours", "A", "B"}
	r := &row{kib: 1, reps: []int{1, 1, 1}, noisy: 2, ns: [][]float64{{1e3, 2e3, 4e3}, {9e3, 9e3, 9e3}, {3e3, 3e3, 4e3}}}
	for _, c := range []struct {
		bar  float64
		want string
	}{{0, "B   1.50"}, {1.5, "1.50         3, 2 dropped"}, {1.6, "1.60 missed"}} {
		if got := r.ratios("x", called, c.bar); !strings.Contains(got, c.want) || !strings.Contains(got, "1.00 to 1.50") {
			t.Errorf("bar %v: %q, want %q", c.bar, got, c.want)
		}
	}
	for _, alone := range []*row{{ns: [][]float64{{1}}}, {ns: [][]float64{{}, {}}}} {
		if got := alone.ratios("x", called, 1); !strings.Contains(got, "not compared") {
			t.Errorf("compared with nobody: %q", got)
		}
	}
}
