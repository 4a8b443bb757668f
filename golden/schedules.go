package golden

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/core/optim"
)

//go:embed schedules
var scheduleFiles embed.FS

// Schedule is a learning rate as a function of the optimizer step, as recorded.
type Schedule struct {
	Name string // "warmup-cosine"
	// Rates are the learning rates of optimizer steps 0, 1, ...
	Rates []float64
}

// ScheduleVariant is a named optimizer configuration with a recorded schedule.
type ScheduleVariant struct {
	Name   string
	Config optim.Config
	// Steps is the number of recorded steps: some beyond the horizon.
	Steps int
}

// ScheduleVariants are the schedules that are recorded: the fixtures' own, one
// that ends above 0, one without a warm-up, and one that stays.
func ScheduleVariants() []ScheduleVariant {
	return []ScheduleVariant{
		{"warmup-cosine", optim.Config{Name: "adamw", LR: 1e-3, Warmup: 4, Horizon: 20}, 23},
		{"warmup-cosine-floor", optim.Config{Name: "sgd", LR: 0.3, Warmup: 3, Horizon: 14, MinLR: 0.03}, 17},
		{"cosine", optim.Config{Name: "adamw", LR: 6e-4, Horizon: 11, MinLR: 6e-5}, 14},
		{"warmup-constant", optim.Config{Name: "adamw", LR: 2e-3, Warmup: 7}, 12},
	}
}

// LoadSchedule reads a recorded schedule. A variant without a file is an error
// that names the command which records it.
func LoadSchedule(name string) (*Schedule, error) {
	f, err := scheduleFiles.Open("schedules/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("no golden schedule %s; %q records it", name, Record)
	}
	defer f.Close()
	s, err := ParseSchedule(f)
	if err != nil {
		return nil, fmt.Errorf("golden schedule %s: %w", name, err)
	}
	s.Name = name
	return s, nil
}

// Format writes one line per step: its number, the bits of the learning rate
// and its decimals.
func (s *Schedule) Format(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# golden schedule: %s\n# made by: %s\n", s.Name, Record)
	for i, x := range s.Rates {
		fmt.Fprintf(b, "%d %016x %v\n", i, math.Float64bits(x), x)
	}
	return b.Flush()
}

// ParseSchedule reads what Format writes; errors name the line. Bits and decimals
// must agree.
func ParseSchedule(r io.Reader) (*Schedule, error) {
	s := &Schedule{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != strconv.Itoa(len(s.Rates)) {
			return nil, fmt.Errorf("line %d: %q: want step %d, bits and decimals", n, line, len(s.Rates))
		}
		bits, err := strconv.ParseUint(f[1], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		x, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if math.Float64bits(x) != bits {
			return nil, fmt.Errorf("line %d: bits %s are not those of %s", n, f[1], f[2])
		}
		s.Rates = append(s.Rates, x)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(s.Rates) == 0 {
		return nil, fmt.Errorf("no steps")
	}
	return s, nil
}
