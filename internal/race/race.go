// Package race says whether the race detector is compiled in. Under it a run
// takes some twenty times as long, so tests of numbers take part of their cases:
// what they leave out runs the same code with other numbers, and is covered by
// the tests without the detector.
package race

// Some is all of the cases, or, under the race detector, the first and every n-th
// after it.
func Some[T any](n int, cases []T) []T {
	if !Enabled {
		return cases
	}
	var out []T
	for i := 0; i < len(cases); i += n {
		out = append(out, cases[i])
	}
	return out
}
