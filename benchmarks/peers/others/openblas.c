// A peer for benchmarks/peers: reads "layout m n k reps" lines, runs sgemm of
// that shape, and answers with nanoseconds per call. Layouts are nn, nt and tn,
// row-major; tn adds to C, the others overwrite it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cblas.h>

static float *operand(size_t n) {
	float *x = aligned_alloc(64, (4 * n + 63) / 64 * 64);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(i % 251) / 256 - 0.5f;
	return x;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(void) {
	char line[128], layout[8];
	int m, n, k, reps, pm = 0, pn = 0, pk = 0;
	float *a = NULL, *b = NULL, *c = NULL;
	printf("%s\n", openblas_get_config());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "%7s %d %d %d %d", layout, &m, &n, &k, &reps) != 5)
			return 1;
		if (m != pm || n != pn || k != pk) {
			free(a), free(b), free(c);
			a = operand((size_t)m * k), b = operand((size_t)k * n), c = operand((size_t)m * n);
			pm = m, pn = n, pk = k;
		}
		int ta = !strcmp(layout, "tn"), tb = !strcmp(layout, "nt");
		double start = now();
		for (int i = 0; i < reps; i++)
			cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a,
				ta ? m : k, b, tb ? k : n, ta ? 1 : 0, c, n);
		printf("%.0f\n", (now() - start) / reps);
		fflush(stdout);
	}
	return 0;
}
