// A peer for benchmarks/collectives, started by mpirun: reads "allreduce elements reps"
// lines, sums that many floats over all ranks in place, and answers with nanoseconds per
// call, of the slowest rank. Between requests nobody spins: the other ranks read what is
// asked from pipes in the directory that the argument names.
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int rank, size;
static float *x;

// sum is one all-reduce.
static void sum(int n) { MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

// prepare makes room, sums once, and says whether the result is right.
static int prepare(int n) {
	free(x);
	if (posix_memalign((void **)&x, 4096, 4 * (size_t)n + 64))
		return 0;
	for (int i = 0; i < n; i++)
		x[i] = rank + i % 7;
	sum(n);
	for (int i = 0; i < n; i++)
		if (x[i] != size * (size - 1) / 2 + size * (i % 7))
			return 0;
	memset(x, 0, 4 * (size_t)n); // sums of zeros stay what they are
	return 1;
}

int main(int argc, char **argv) {
	char path[PATH_MAX], line[128], version[MPI_MAX_LIBRARY_VERSION_STRING];
	FILE *in = stdin, **to;
	int n, reps, last = 0, length;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	to = calloc((size_t)size, sizeof *to);
	if (rank > 0) {
		snprintf(path, sizeof path, "%s/%d", argv[1], rank);
		if (mkfifo(path, 0600))
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank > 0)
		in = fopen(path, "r");
	for (int r = 1; rank == 0 && r < size; r++) {
		snprintf(path, sizeof path, "%s/%d", argv[1], r);
		to[r] = fopen(path, "w");
	}
	MPI_Get_library_version(version, &length);
	version[strcspn(version, ",")] = 0;
	if (rank == 0) {
		printf("%s\n", version);
		fflush(stdout);
	}
	while (fgets(line, sizeof line, in)) {
		for (int r = 1; rank == 0 && r < size; r++) {
			fputs(line, to[r]);
			fflush(to[r]);
		}
		if (sscanf(line, "allreduce %d %d", &n, &reps) != 2)
			MPI_Abort(MPI_COMM_WORLD, 1);
		if (n != last && !prepare(n))
			MPI_Abort(MPI_COMM_WORLD, 1);
		last = n;
		sum(n); // warm
		MPI_Barrier(MPI_COMM_WORLD);
		double took = MPI_Wtime(), slowest;
		for (int i = 0; i < reps; i++)
			sum(n);
		took = MPI_Wtime() - took;
		MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (rank == 0) {
			printf("%.0f\n", 1e9 * slowest / reps);
			fflush(stdout);
		}
	}
	for (int r = 1; rank == 0 && r < size; r++)
		fclose(to[r]);
	MPI_Finalize();
	return 0;
}
