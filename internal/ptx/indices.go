package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A product of two numbers of 32 bits that is then made one of 64 has lost what was beyond:
// where it is an index, elements from 2^31 on are other ones. No test has room for so many,
// so the PTX must not hold any: indices are multiplied in 64 bits.

// narrowProducts lists the lines of PTX that widen a product, or a sum of which one is a
// part. A block's number times its threads, plus the thread, is less than a dimension.
func narrowProducts(text string) (found []string) {
	instruction := regexp.MustCompile(`^\s*(?:@!?%\w+ )?([\w.]+)\s+(%\w+), (.*);`)
	of := map[string]string{} // registers, and what is known of them
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, ".entry ") {
			clear(of)
		}
		m := instruction.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		op, to, args := m[1], m[2], strings.Split(m[3], ", ")
		is := func(what string) bool {
			return slices.ContainsFunc(args, func(a string) bool { return of[a] == what })
		}
		delete(of, to)
		switch base, _, _ := strings.Cut(op, "."); {
		case op == "mov.u32" && strings.HasPrefix(args[0], "%ctaid"), op == "mov.u32" && strings.HasPrefix(args[0], "%ntid"):
			of[to] = "special"
		case op == "mov.u32", op == "mov.b32":
			if v, known := of[args[0]]; known {
				of[to] = v
			}
		case strings.HasPrefix(op, "mul.lo.") && strings.HasSuffix(op, "32"), strings.HasPrefix(op, "mad.lo.") && strings.HasSuffix(op, "32"):
			constant := !strings.HasPrefix(args[0], "%") || !strings.HasPrefix(args[1], "%")
			if !constant && (of[args[0]] != "special" || of[args[1]] != "special") || base == "mad" && of[args[2]] == "product" {
				of[to] = "product"
			}
		case (base == "add" || base == "shl") && strings.HasSuffix(op, "32") && is("product"):
			of[to] = "product"
		case (base == "mul" || base == "mad") && strings.Contains(op, ".wide.") && is("product"),
			base == "cvt" && (strings.HasPrefix(op, "cvt.s64.") || strings.HasPrefix(op, "cvt.u64.")) && is("product"):
			found = append(found, fmt.Sprintf("line %d: %s: widens a product of 32 bits, which has lost what was beyond", i+1, strings.TrimSpace(line)))
		}
	}
	return found
}
