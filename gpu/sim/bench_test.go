//go:build sim

package sim_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// cpu is the time that this process has computed.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProduct times products with the shapes of nano: rows of tokens by the hidden,
// the intermediate and the vocabulary's size. Time is that of all processors together, so
// that a busy machine does not count; make bench-sim says which checks and instructions.
func BenchmarkProduct(b *testing.B) {
	for _, s := range [][3]int{{128, 32, 32}, {128, 64, 32}, {128, 32, 64}, {128, 256, 32}, {256, 256, 256}} {
		m, n, k := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			r := start(b, 0)
			f := r.function(r.module(ptx(b, "correct")), "matmul")
			x, y, z := r.upload(floats(random(m*k, 1)...)), r.upload(floats(random(k*n, 2)...)), r.alloc(4*m*n)
			b.ResetTimer()
			from := cpu()
			for b.Loop() {
				if e := r.run(f, dim{(n + 15) / 16, (m + 15) / 16}, dim{16, 16}, 0, x, y, z, m, n, k); e != success {
					b.Fatalf("error %d: %s", e, findings())
				}
			}
			flop := 2 * float64(m) * float64(n) * float64(k) * float64(b.N)
			b.ReportMetric(flop/float64((cpu()-from).Nanoseconds()), "GFLOP/s/core")
		})
	}
}
