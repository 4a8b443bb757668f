package independent

import "math"

// chained is back of branches of one width, each cut into so many equal groups, in
// canonical order: the tree over the groups of a chain each, which runs through the
// group's part of every branch in turn. A sum over the hidden size is one group. Where
// that order is not known or the factors are not exact it is back.
//
// The order known, a chain's partial sums s_k are, and each rounding is u of one of
// them, not of the sum of all magnitudes (Higham, section 3.3): the chain is off by
// at most (1+u)^n*u*sum|s_k|. So sums that are long and cancel have bounds that say
// something.
func (m *Model) chained(count int, branches ...branch) matrix {
	width := branches[0].dy.cols
	for _, b := range branches {
		if m.Groups < 1 || count&(count-1) != 0 || width%count != 0 || b.dy.cols != width || b.dy.e != nil {
			if count == 1 && len(branches) == 1 {
				return m.back(width, b)
			}
			widths := make([]int, len(branches))
			for i, b := range branches {
				widths[i] = b.dy.cols
			}
			return m.back(m.grouped(widths...), branches...)
		}
	}
	cols := len(m.weights[branches[0].weight]) / width
	weights := make([]matrix, len(branches))
	for i, b := range branches {
		weights[i] = m.matrix(b.weight, cols)
	}
	out := newMatrix(branches[0].dy.rows, cols)
	parallel(out.rows, func(row int) {
		groups := make([][]value, count)
		for g := range groups {
			lo, hi := width/count*g, width/count*(g+1)
			c := newMatrix(1, cols) // the sums, and those of their magnitudes
			for i, b := range branches {
				for k := lo; k < hi; k++ {
					link(c.v, c.e, b.dy.v[row*width+k], weights[i].v[k*cols:(k+1)*cols])
				}
			}
			groups[g] = chains(c, (hi-lo)*len(branches))
		}
		for j, x := range tree(groups) {
			out.set(row*cols+j, x)
		}
	})
	return out
}

// link adds a*b to the sums s, and their magnitudes to those in all.
func link(s, all []float64, a float64, b []float64) {
	s, all = s[:len(b)], all[:len(b)]
	for j, x := range b {
		s[j] += a * x
		all[j] += math.Abs(s[j])
	}
}

// chains are sums of n roundings, c's bounds being the magnitudes of all partial
// sums; where these may have left the range of float32 there is no bound.
func chains(c matrix, n int) []value {
	out := make([]value, c.cols)
	grown := 1 + gamma(n)
	for j := range out {
		out[j] = value{c.v[j], (unit*c.e[j] + float64(n)*tiny) * grown}
		if !(c.e[j]*grown <= math.MaxFloat32) {
			out[j].e = math.Inf(1)
		}
	}
	return out
}

// tree adds neighbours until one is left; their number is a power of two.
func tree(x [][]value) []value {
	for len(x) > 1 {
		var next [][]value
		for i := 0; i < len(x); i += 2 {
			for j := range x[i] {
				x[i][j] = x[i][j].add(x[i+1][j])
			}
			next = append(next, x[i])
		}
		x = next
	}
	return x[0]
}
