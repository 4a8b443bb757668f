// Kernels without a fault: none must be found in them, and what they compute is known.
#include "gpu.h"

KERNEL vecadd(const float *a, const float *b, float *c, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}

// C = A B, row by column, 16 x 16 tiles.
KERNEL __launch_bounds__(256) matmul(const float *A, const float *B, float *C, int M, int N, int K) {
	SHARED float As[16][16], Bs[16][16];
	int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
	float acc = 0;
	for (int k0 = 0; k0 < K; k0 += 16) {
		As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.0f;
		Bs[ty][tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
		__syncthreads();
		for (int k = 0; k < 16; k++) acc = fma(As[ty][k], Bs[k][tx], acc);
		__syncthreads();
	}
	if (row < M && col < N) C[(size_t)row * N + col] = acc;
}
