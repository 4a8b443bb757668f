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

// Sums of 256 numbers a block, by a tree in shared memory and by shuffles.
KERNEL sums(const int *x, int *out, int n) {
	SHARED int s[8];
	int v = x[blockIdx.x * blockDim.x + threadIdx.x], lane = threadIdx.x & 31;
	for (int o = 16; o; o >>= 1) v += shuffleDown(v, o);
	if (!lane) s[threadIdx.x >> 5] = v;
	__syncthreads();
	if (threadIdx.x < 8) {
		v = s[threadIdx.x];
		for (int o = 4; o; o >>= 1) v += shuffleDown(v, o, 0xff);
		if (!threadIdx.x) out[blockIdx.x] = v;
	}
}
// Each warp passes words through shared memory with nothing but its own barrier.
KERNEL by_warps(const int *x, int *y) {
	SHARED int s[64];
	int t = threadIdx.x;
	for (int k = 0; k < 3; k++) {
		s[t] = x[t] + k;
		syncWarp();
		int v = s[t ^ 1];
		syncWarp();
		if (k == 2) y[t] = v;
	}
}
// Two stages of asynchronous copies, as a product has them.
KERNEL pipeline(const float *x, float *y, int steps) {
	SHARED __attribute__((aligned(16))) float s[2][256];
	int t = threadIdx.x;
	float a = 0;
	copyAsync16(&s[0][4 * t], x + 4 * t);
	commit();
	for (int k = 0; k < steps; k++) {
		if (k + 1 < steps) copyAsync16(&s[(k + 1) & 1][4 * t], x + 256 * (k + 1) + 4 * t);
		commit();
		wait<1>();
		__syncthreads();
		for (int j = 0; j < 4; j++) a += s[k & 1][(t + 64 * j) & 255];
		__syncthreads();
	}
	y[t] = a;
}
// Copies of 16 bytes up to the end of an array that is no multiple of it, read by others
// than who copied.
KERNEL ragged(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[64];
	int t = threadIdx.x, left = n - 4 * t;
	if (t < 16) copyAsyncPart(&s[4 * t], x + 4 * t, 4 * (left < 0 ? 0 : left > 4 ? 4 : left));
	commit();
	wait<0>();
	__syncthreads();
	y[t] = s[63 - t];
}
// Words that two threads have read and one of them writes, with barriers between: of the
// block, and of the warp; and of blocks, each its own.
KERNEL readers(const int *x, int *y, int *z) {
	SHARED int s[64];
	SHARED unsigned char b[64];
	int t = threadIdx.x;
	s[t] = x[t], b[t] = t, z[64 * blockIdx.x + t] = t;
	__syncthreads();
	int v = s[t ^ 32] + s[t] + b[t ^ 32] + b[t] + z[64 * blockIdx.x + (t ^ 32)] + z[64 * blockIdx.x + t];
	__syncthreads();
	s[t] = v, b[t] = v, z[64 * blockIdx.x + t] = v;
	syncWarp();
	v = s[t ^ 1] + s[t] + b[t ^ 1] + b[t] + z[64 * blockIdx.x + (t ^ 1)] + z[64 * blockIdx.x + t];
	syncWarp();
	s[t] = v, b[t] = v, z[64 * blockIdx.x + t] = v;
	y[64 * blockIdx.x + t] = s[t] + b[t] + z[64 * blockIdx.x + t];
}
// Bytes beside each other, of several threads.
KERNEL bytes(const unsigned char *x, unsigned char *y) {
	SHARED unsigned char s[64];
	s[threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	s[threadIdx.x] += 1;
	y[threadIdx.x] = s[threadIdx.x];
}
// A stack of partial sums in local memory, as the trees of products have.
KERNEL counter(const float *x, float *y, int groups, int n) {
	float level[8];
	int used = 0;
	for (int g = 0; g < groups; g++) {
		float v = x[g * 64 + threadIdx.x];
		for (int k = g; k & 1; k >>= 1) v = level[--used] + v;
		level[used++] = v;
	}
	float v = level[--used];
	while (used) v = level[--used] + v;
	y[threadIdx.x] = v;
}
KERNEL histogram(const int *x, int *out, int n) {
	SHARED int s[8];
	if (threadIdx.x < 8) s[threadIdx.x] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[x[i] & 7], 1);
	__syncthreads();
	if (threadIdx.x < 8) atomicAdd(&out[threadIdx.x], s[threadIdx.x]);
}
// 100 KB of shared memory, all of it used.
KERNEL large(const int *x, int *y, int n) {
	DYNAMIC(int, s);
	for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i & 63] + i;
	__syncthreads();
	int v = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) v += s[n - 1 - i];
	y[threadIdx.x] = v;
}
__constant__ int table[4] = {3, 1, 4, 1};
__device__ int global[4] = {10, 20, 30};
KERNEL variables(int *y) {
	int t = threadIdx.x;
	y[t] = table[t & 3] + global[t & 3];
}
static __device__ __attribute__((noinline)) int collatz(int n, int *most) {
	int steps = 0;
	while (n != 1) {
		n = n & 1 ? 3 * n + 1 : n / 2;
		if (n > *most) *most = n;
		steps++;
	}
	return steps;
}
// A call, loops of different lengths, early returns.
KERNEL steps(int *y, int n) {
	int t = threadIdx.x, most = 0;
	if (t >= n) return;
	int s = collatz(t + 1, &most);
	y[t] = s * 100000 + most;
}
// Lanes that leave nested loops at different times, and meet in shuffles between.
KERNEL nested(const int *x, int *y) {
	int t = threadIdx.x & 31, v = 0;
	for (int i = 0; i < (t & 3) + 1; i++) {
		for (int j = 0; j < x[t] % 5; j++) {
			if (j == 3) break;
			v += i * 10 + j;
		}
	}
	v += shuffleXor(v, 1);
	if (t & 4) {
		v += 7;
		v += shuffleXor(v, 8, 0xf0f0f0f0);
	} else {
		v -= 7;
		v += shuffleXor(v, 16, 0x0f0f0f0f);
	}
	y[threadIdx.x] = v + shuffle(v, 31);
}
// Half a block makes what the other half uses, with barriers of their own.
KERNEL halves(const int *x, int *y) {
	SHARED int s[64];
	int t = threadIdx.x;
	if (t < 64) {
		s[t] = x[t] * 2;
		asm volatile("bar.arrive 1, 128;" ::: "memory");
	} else {
		asm volatile("bar.sync 1, 128;" ::: "memory");
		y[t - 64] = s[127 - t];
	}
}
// Blocks after a barrier may end one by one.
KERNEL leave(const int *x, int *y) {
	SHARED int s[64];
	s[threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	if (threadIdx.x & 1) return;
	y[threadIdx.x] = s[threadIdx.x + 1];
}
