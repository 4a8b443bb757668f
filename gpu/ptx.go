//go:build cuda

package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	ptxEntry   = regexp.MustCompile(`\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)`)
	ptxEntries = regexp.MustCompile(`\.entry\b`)
	ptxThreads = regexp.MustCompile(`\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?`)
	ptxParam   = regexp.MustCompile(`^\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)(?:\s+\.ptr)?(?:\s+\.(?:global|shared|const|local))?(?:\s+\.align\s+\d+)?\s+[\w$]+(?:\[(\d+)\])?$`)
)

// entry is a kernel in a text of PTX: how many bytes its parameters have, and how many
// threads a block of it may have, 0 where the text does not say. The driver is not asked: it
// reads as many bytes as the kernel has, whatever it is given.
type entry struct {
	name            string
	params, threads int
}

// entriesOf gives the kernels in a text, in its order.
func entriesOf(ptx string) (out []entry, err error) {
	ptx = withoutComments(ptx)
	found := ptxEntry.FindAllStringSubmatch(ptx, -1)
	if n := len(ptxEntries.FindAllString(ptx, -1)); n != len(found) {
		return nil, fmt.Errorf("%d of %d kernels are not understood", n-len(found), n)
	}
	for _, m := range found {
		e := entry{name: m[1]}
		if e.params, err = parameters(m[2]); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", e.name, err)
		}
		if e.threads, err = threads(m[3]); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", e.name, err)
		}
		if slices.ContainsFunc(out, func(o entry) bool { return o.name == e.name }) {
			return nil, fmt.Errorf("kernel %s: is there twice", e.name)
		}
		out = append(out, e)
	}
	return out, nil
}

// threads reads .maxntid among what stands behind the parameters.
func threads(s string) (int, error) {
	m := ptxThreads.FindStringSubmatch(s)
	if m == nil {
		return 0, nil
	}
	n := 1
	for _, d := range m[1:] {
		if d == "" {
			continue
		}
		k, err := strconv.Atoi(d)
		if err != nil || k < 1 || k > mostThreads/n {
			return 0, fmt.Errorf("%s: no block has so many threads", strings.TrimSpace(m[0]))
		}
		n *= k
	}
	return n, nil
}

// mostThreads is how many threads a block has at most, on any device.
const mostThreads = 1024

// parameters is how many bytes parameters have, one behind the other.
func parameters(s string) (end int, err error) {
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		align, size, err := parameter(p)
		if err != nil {
			return 0, err
		}
		if end = (end+align-1)/align*align + size; end > mostParameters {
			return 0, fmt.Errorf("more than %d bytes of parameters", mostParameters)
		}
	}
	return end, nil
}

// mostParameters is how many bytes parameters have at most, by PTX.
const mostParameters = 32764

// parameter reads the declaration of one parameter.
func parameter(s string) (align, size int, err error) {
	m := ptxParam.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, fmt.Errorf("parameter %q is not understood", s)
	}
	bits, _ := strconv.Atoi(m[2])
	size = bits / 8
	align = size
	if m[1] != "" {
		align, _ = strconv.Atoi(m[1])
	}
	if m[3] != "" {
		n, _ := strconv.Atoi(m[3])
		size *= n
	}
	if align == 0 || size == 0 {
		return 0, 0, fmt.Errorf("parameter %q has no size", s)
	}
	if align > mostParameters || size > mostParameters || size < 0 {
		return 0, 0, fmt.Errorf("parameter %q: more than %d bytes", s, mostParameters)
	}
	return align, size, nil
}

// withoutComments takes comments of both kinds out of a text.
func withoutComments(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '/')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		end, after := "", 0
		switch s[i+1] {
		case '/':
			end = "\n"
		case '*':
			end, after = "*/", 2
		default:
			b.WriteString(s[:i+1])
			s = s[i+1:]
			continue
		}
		b.WriteString(s[:i])
		j := strings.Index(s[i+2:], end)
		if j < 0 {
			return b.String()
		}
		s = s[i+2+j+after:]
	}
}
