//go:build cuda

package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	ptxEntry = regexp.MustCompile(`\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?`)
	ptxParam = regexp.MustCompile(`^\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)(?:\s+\.ptr)?(?:\s+\.(?:global|shared|const|local))?(?:\s+\.align\s+\d+)?\s+[\w$]+(?:\[(\d+)\])?$`)
)

// ptxEntries gives the kernels in a text of PTX and how many bytes the parameters of each
// have. The driver is not asked: it reads as many as the kernel has, whatever it is given.
func ptxEntries(ptx string) (map[string]int, error) {
	out := map[string]int{}
	for _, m := range ptxEntry.FindAllStringSubmatch(withoutComments(ptx), -1) {
		end := 0
		for p := range strings.SplitSeq(m[2], ",") {
			if p = strings.TrimSpace(p); p == "" {
				continue
			}
			align, size, err := parameter(p)
			if err != nil {
				return nil, fmt.Errorf("kernel %s: %w", m[1], err)
			}
			end = (end+align-1)/align*align + size
		}
		out[m[1]] = end
	}
	return out, nil
}

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
