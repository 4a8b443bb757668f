package golden

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/kernels"
)

//go:embed kernels.txt
var kernelFile string

// KernelSeed is the seed of the cases of package kernels/drill whose results are
// recorded.
const KernelSeed = 1

// KernelResult identifies what the cases of one kernel give by definition.
type KernelResult struct {
	Kernel string // a method of kernels.Kernels
	Level  int    // the cases are those of this level, without lower ones
	Cases  int
	// Digest is the sum of the cases' digests, see drill.Expected.
	Digest kernels.Digest
}

// KernelResults are those of all kernels, under one version of the arithmetic.
type KernelResults struct {
	Arithmetic int
	Results    []KernelResult
}

// LoadKernels reads the recorded results.
func LoadKernels() (*KernelResults, error) {
	k, err := ParseKernels(strings.NewReader(kernelFile))
	if err != nil {
		return nil, fmt.Errorf("golden results of kernels: %w; %q records them", err, Record)
	}
	return k, nil
}

// Of is what the cases of a kernel up to a level give together, and whether it is
// recorded for that many cases under that version of the arithmetic.
func (k *KernelResults) Of(kernel string, level, cases, arithmetic int) (kernels.Digest, bool) {
	var sum kernels.Digest
	n := 0
	for _, r := range k.Results {
		if r.Kernel == kernel && r.Level <= level {
			sum.Add(r.Digest)
			n += r.Cases
		}
	}
	return sum, n == cases && n > 0 && arithmetic == k.Arithmetic
}

// Format writes the version of the arithmetic and one line per kernel and level:
// its name, the level, the number of cases and the digest.
func (k *KernelResults) Format(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# golden results of kernels, seed %d\n# made by: %s\narithmetic %d\n", KernelSeed, Record, k.Arithmetic)
	for _, r := range k.Results {
		text, _ := r.Digest.MarshalText() // never fails
		fmt.Fprintf(b, "%s %d %d %s\n", r.Kernel, r.Level, r.Cases, text)
	}
	return b.Flush()
}

// ParseKernels reads what Format writes; errors name the line.
func ParseKernels(r io.Reader) (*KernelResults, error) {
	k := &KernelResults{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := k.parse(line); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(k.Results) == 0 {
		return nil, errors.New("no results")
	}
	return k, nil
}

// parse reads one line that is no comment.
func (k *KernelResults) parse(line string) error {
	if k.Arithmetic == 0 {
		if _, err := fmt.Sscanf(line, "arithmetic %d", &k.Arithmetic); err != nil || k.Arithmetic < 1 {
			return errors.New("want the version of the arithmetic")
		}
		return nil
	}
	var r KernelResult
	var digest string
	if n, err := fmt.Sscan(line, &r.Kernel, &r.Level, &r.Cases, &digest); n != 4 || r.Level < 1 || r.Cases < 1 {
		return fmt.Errorf("want a kernel, its level, cases and digest (%v)", err)
	}
	if err := r.Digest.UnmarshalText([]byte(digest)); err != nil {
		return err
	}
	if slices.ContainsFunc(k.Results, func(o KernelResult) bool { return o.Kernel == r.Kernel && o.Level == r.Level }) {
		return errors.New("twice")
	}
	k.Results = append(k.Results, r)
	return nil
}
