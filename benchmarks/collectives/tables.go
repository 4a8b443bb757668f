package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
)

// table is one way in which ranks reach each other, against others'.
type table struct {
	name   string
	says   string
	ranks  []int
	sizes  []int // KiB
	others []other
	// bar is what the ratio must be for a vector of some KiB; 0 is no bar.
	bar func(kib int) float64
}

// names are those of all tables.
func names() (all []string) {
	for _, t := range tables() {
		all = append(all, t.name)
	}
	return all
}

func tables() []table {
	return []table{
		{"tcp", "over TCP of the loopback interface", []int{2, 4}, []int{1, 1 << 10, 4 << 10, 16 << 10, 64 << 10},
			[]other{openMPI("tcp"), gloo()}, func(kib int) float64 {
				switch {
				case kib >= 16<<10:
					return 1.4
				case kib >= 1<<10:
					return 1
				}
				return 1 / 1.5 // latency
			}},
		{"shm", "through shared memory", []int{2, 4}, []int{1, 1 << 10, 4 << 10, 16 << 10, 64 << 10},
			[]other{openMPI("vader")}, func(kib int) float64 {
				switch {
				case kib >= 4<<10:
					return 1.5
				case kib >= 1<<10:
					return 1
				}
				return 0
			}},
		{"local", "between goroutines, others' processes through shared memory", []int{2, 4, 8}, []int{1 << 10, 4 << 10, 16 << 10, 64 << 10},
			[]other{openMPI("vader")}, func(int) float64 { return 2 }},
	}
}

// machine is where it is measured.
type machine struct {
	options
	dir  string
	left []string // what is left out
}

// row is a vector's length with what was measured: of each side, ours first, the
// nanoseconds of each quiet round.
type row struct {
	kib   int
	reps  []int
	ns    [][]float64
	noisy int // rounds that were dropped
}

// window is about how long a measurement takes.
const window = 40 * time.Millisecond

// group measures a table with a number of ranks, all lengths in each round, and gives
// the rows of the ratios.
func (m *machine) group(t *table, n int) ([]string, error) {
	ours, err := startOurs(t.name, n)
	if err != nil {
		return nil, err
	}
	defer ours.Stop()
	sides, called := []*turns.Peer{ours}, []string{"ours"}
	fmt.Printf("# %s, %d ranks: %s; %s", t.says, n, ours.Banner, others(t))
	for _, o := range t.others {
		p, err := o.start(m, n)
		if err != nil {
			m.left = append(m.left, fmt.Sprintf("%s, %s, %d ranks: %v", o.name, t.name, n, err))
			continue
		}
		defer p.Stop()
		sides, called = append(sides, p), append(called, o.name)
		fmt.Printf("# %s: %s\n", o.name, p.Banner)
	}
	var rows []*row
	for _, kib := range t.sizes {
		if !strings.Contains(rowName(t, n, kib), m.match) {
			continue
		}
		r, err := first(sides, kib)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	until := time.Now().Add(m.wait)
	for i, open := 0, true; open; i++ {
		open = false
		for _, r := range rows {
			if len(r.ns[0]) == m.rounds || !m.calm(until) {
				continue
			}
			open = true
			if err := m.round(i, sides, r); err != nil {
				return nil, err
			}
		}
	}
	var out []string
	for _, r := range rows {
		fmt.Print(r.lines(rowName(t, n, r.kib), called))
		out = append(out, r.ratios(rowName(t, n, r.kib), called, t.bar(r.kib)))
	}
	return out, nil
}

// others says how others are used.
func others(t *table) string {
	var s strings.Builder
	for _, o := range t.others {
		fmt.Fprintf(&s, "%s by %s; ", o.name, o.says)
	}
	return strings.TrimSuffix(s.String(), "; ") + "\n"
}

func rowName(t *table, n, kib int) string {
	length := fmt.Sprintf("%dKiB", kib)
	if kib >= 1<<10 {
		length = fmt.Sprintf("%dMiB", kib>>10)
	}
	return fmt.Sprintf("%s/ranks=%d/%s", t.name, n, length)
}

// request asks a side for all-reduces.
func request(kib int) string { return fmt.Sprintf("allreduce %d", kib*256) }

// first finds out how many calls are a measurement of each side.
func first(sides []*turns.Peer, kib int) (*row, error) {
	r := &row{kib: kib, ns: make([][]float64, len(sides))}
	for _, p := range sides {
		reps := 1
		for range 3 {
			ns, err := p.Ask(request(kib), reps)
			if err != nil {
				return nil, err
			}
			reps = max(3, int(float64(window.Nanoseconds())/max(ns, 1)))
		}
		r.reps = append(r.reps, reps)
	}
	return r, nil
}

// calm waits until others leave the machine alone; false where it is too late.
func (m *machine) calm(until time.Time) bool {
	for time.Now().Before(until) {
		share, unknown := turns.Others()
		if unknown != nil {
			return true
		}
		time.Sleep(look)
		if busy, err := share(); err == nil && busy <= m.quiet {
			return true
		}
	}
	return false
}

// look is how long a look at what others do takes.
const look = 100 * time.Millisecond

// round is round i of a row, kept if others left the machine alone.
func (m *machine) round(i int, sides []*turns.Peer, r *row) error {
	var failed error
	calls := make([]func() float64, len(sides))
	for s, p := range sides {
		calls[s] = func() float64 {
			ns, err := p.Ask(request(r.kib), r.reps[s])
			if err != nil {
				failed = err
			}
			return ns
		}
	}
	share, unknown := turns.Others()
	ns := turns.Round(i, calls...)
	if unknown == nil {
		busy, err := share()
		if err != nil || busy > m.quiet {
			r.noisy++
			return err
		}
	}
	for s := range ns {
		r.ns[s] = append(r.ns[s], ns[s])
	}
	return failed
}

// lines are what was measured of a row in the Go benchmark format.
func (r *row) lines(name string, called []string) string {
	var s strings.Builder
	for i, x := range r.ns {
		q1, q2, q3 := turns.Quartiles(x)
		if len(x) == 0 {
			continue // no figure
		}
		fmt.Fprintf(&s, "BenchmarkAllReduce/%s/%s-%d\t%d\t%.0f ns/op\t%.0f q1-ns/op\t%.0f q3-ns/op\t%.2f MB/s\n",
			name, called[i], runtime.NumCPU(), len(x)*r.reps[i], q2, q1, q3, float64(r.kib)*1024*1e3/q2)
	}
	return s.String()
}

const titles = "all-reduce                 ours us    peer us  the better  ratio         quartiles   best   bar       rounds\n"

// ratios is the row of a table: against the other whose median is the better one.
func (r *row) ratios(name string, called []string, bar float64) string {
	ours, best := median(r.ns[0]), 0
	for i := 1; i < len(r.ns); i++ {
		if best == 0 || median(r.ns[i]) < median(r.ns[best]) {
			best = i
		}
	}
	if best == 0 || len(r.ns[0]) == 0 {
		return fmt.Sprintf("%-24s not compared: %d others, %d quiet rounds, %d dropped\n", name, len(r.ns)-1, len(r.ns[0]), r.noisy)
	}
	q1, q2, q3 := turns.Quartiles(turns.Ratios(r.ns[best], r.ns[0]))
	verdict := ""
	if bar > 0 {
		verdict = fmt.Sprintf("%.2f", bar)
		if q2 < bar {
			verdict += " missed"
		}
	}
	return fmt.Sprintf("%-24s %10.1f %10.1f %11s %6.2f %17s %6.2f %-12s %d, %d dropped\n", name, ours/1e3, median(r.ns[best])/1e3, called[best], q2,
		fmt.Sprintf("%.2f to %.2f", q1, q3), slices.Min(r.ns[best])/slices.Min(r.ns[0]), verdict, len(r.ns[0]), r.noisy)
}

func median(x []float64) float64 {
	_, q, _ := turns.Quartiles(x)
	return q
}

// header are the configuration lines of the benchmark format.
func header() string {
	return fmt.Sprintf("goos: %s\ngoarch: %s\ngo: %s\nprocessors: %d\n", runtime.GOOS, runtime.GOARCH, runtime.Version(), runtime.NumCPU())
}
