// Each message that comes goes back to its sender, with its tag; one with tag 0 ends it.
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
	enum { room = 1 << 20 };
	char *data = malloc(room);
	int level, n;
	MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	for (int i = 0; i < 64; i++) { // reducers, as package mpi makes them
		MPI_Comm other;
		MPI_Comm_dup(MPI_COMM_WORLD, &other);
	}
	for (;;) {
		MPI_Status from;
		int come = 0;
		for (MPI_Request get = MPI_REQUEST_NULL;;) {
			if (get == MPI_REQUEST_NULL) MPI_Irecv(data, room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &get);
			MPI_Test(&get, &come, &from);
			if (come) break;
			usleep(20);
		}
		if (from.MPI_TAG == 0) break;
		MPI_Get_count(&from, MPI_BYTE, &n);
		MPI_Request put;
		char *copy = malloc(n + 1);
		for (int i = 0; i < n; i++) copy[i] = data[i];
		MPI_Isend(copy, n, MPI_BYTE, from.MPI_SOURCE, from.MPI_TAG, MPI_COMM_WORLD, &put);
		MPI_Request_free(&put); // the copy is never freed: a test is short
	}
	MPI_Finalize();
	return 0;
}
