// Kernels with one bug each, which planted_test.go launches with 64 threads a block and
// x of 64 numbers; y has room for 64 as well and holds nothing. The line of the bug ends
// with the word bug.
#include "gpu.h"

#define T threadIdx.x

// Out of bounds.
KERNEL oob_global(const float *x, float *y, int n) {
	y[T + 1] = x[T]; // bug
}
KERNEL oob_before(const float *x, float *y, int n) {
	y[T] = x[(int)T - 1]; // bug
}
KERNEL oob_shared(const float *x, float *y, int n) {
	SHARED float s[64], t[64];
	s[T] = x[T], t[T] = 1;
	__syncthreads();
	y[T] = s[T + 1] + t[T]; // bug
}
KERNEL oob_dynamic(const float *x, float *y, int n) {
	DYNAMIC(float, s);
	s[T] = x[T]; // bug
	__syncthreads();
	y[T] = s[T];
}
KERNEL oob_local(const float *x, float *y, int n) {
	float a[6];
	for (int k = 0; k < 6; k++) a[(k + n) % 6] = x[k];
	y[T] = a[T % (n - 57)]; // bug
}
KERNEL oob_wild(const float *x, float *y, int n) {
	y[T] = *(const float *)(size_t)(0x12345000 + 4 * T); // bug
}
KERNEL oob_far(const float *x, float *y, int n) {
	y[T + (1 << 28)] = x[T]; // bug
}

// Misaligned.
KERNEL misaligned_store(const float *x, float *y, int n) {
	float4 v = {1, 2, 3, 4};
	*(float4 *)(y + 1 + 4 * (T & 3)) = v; // bug
}
KERNEL misaligned_load(const float *x, float *y, int n) {
	y[T] = *(const float *)((const char *)x + T); // bug
}
KERNEL misaligned_shared(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[68];
	s[T] = x[T];
	__syncthreads();
	u64 v;
	asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(sharedAddress(s + n - 61))); // bug
	y[T] = v;
}

// Not initialised.
KERNEL uninit_global(const float *x, float *y, int n) {
	y[T] = y[T] + x[T]; // bug
}
KERNEL uninit_shared(const float *x, float *y, int n) {
	SHARED float s[64];
	if (T < 63) s[T] = x[T];
	__syncthreads();
	y[T] = s[T]; // bug
}
KERNEL uninit_local(const float *x, float *y, int n) {
	float a[64];
	for (int k = 0; k < n - 1; k++) a[k] = x[k];
	y[T] = a[T]; // bug
}
KERNEL uninit_stale(const float *x, float *y, int n) { // what the block before left
	SHARED float s[64];
	if (blockIdx.x == 0) s[T] = x[T];
	__syncthreads();
	if (T < 32) y[blockIdx.x * 32 + T] = s[T]; // bug
}

// Races within a block.
KERNEL race_barrier(const float *x, float *y, int n) {
	SHARED float s[64];
	s[T] = 0;
	__syncthreads();
	s[T] = x[T]; // bug
	y[T] = s[63 - T]; // bug
}
KERNEL race_again(const float *x, float *y, int n) { // written again before all have read
	SHARED float s[64];
	float a = 0;
	for (int k = 0; k < 3; k++) {
		s[T] = x[T] + k; // bug
		__syncthreads();
		a += s[(T + 33) & 63];
	}
	y[T] = a;
}
KERNEL race_warp(const float *x, float *y, int n) {
	SHARED float s[64];
	s[T] = x[T];
	y[T] = s[T ^ 1]; // bug
}
KERNEL race_shuffle(const float *x, float *y, int n) { // a shuffle orders no memory
	SHARED int s[64];
	s[T] = T;
	int v = shuffleXor(T, 1);
	y[T] = s[T ^ 1] + v; // bug
}
KERNEL race_copy(const float *x, float *y, int n) {
	SHARED float s[64];
	copyAsync(&s[T], &x[T]);
	commit();
	y[T] = s[T]; // bug
	wait<0>();
}
KERNEL race_copy_group(const float *x, float *y, int n) { // waits for one too few
	SHARED float s[64], t[64];
	copyAsync(&s[T], &x[T]);
	commit();
	copyAsync(&t[T], &x[T]);
	commit();
	wait<1>();
	__syncthreads();
	y[T] = s[T] + t[T]; // bug
}
KERNEL race_copy_barrier(const float *x, float *y, int n) { // each waits for its own copies only
	SHARED float s[64];
	s[T] = 0;
	__syncthreads();
	copyAsync(&s[T], &x[T]); // bug
	commit();
	wait<0>();
	y[T] = s[63 - T]; // bug
}
KERNEL race_global(const float *x, float *y, int n) {
	y[T] = x[T]; // bug
	if (T < 32) y[T + 32] = 2; // bug
}

// Copies of 16 bytes, of which the first word is well and a later one is not.
__device__ __attribute__((aligned(16))) float six[6];
KERNEL copy_oob_source(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[8];
	if (T < 2) copyAsync16(&s[4 * T], &six[4 * T]); // bug
	commit();
	wait<0>();
	if (T < 2) y[T] = s[4 * T];
}
KERNEL copy_oob_shared(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[62], t[64];
	t[T] = 1;
	if (T < 16) copyAsync16(&s[4 * T], &x[4 * T]); // bug
	commit();
	wait<0>();
	if (T < 16) y[T] = s[4 * T] + t[T];
}
KERNEL copy_uninit(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[64];
	if (T < 16) {
		y[4 * T] = y[4 * T + 1] = y[4 * T + 2] = 1;
		copyAsync16(&s[4 * T], &y[4 * T]); // bug
	}
	commit();
	wait<0>();
	if (T < 16) y[4 * T] = s[4 * T];
}
KERNEL copy_race_source(const float *x, float *y, int n) {
	SHARED __attribute__((aligned(16))) float s[64];
	if (T >= 16 && T < 32) ((float *)x)[4 * T - 61] = 1;
	if (T >= 32 && T < 48) copyAsync16(&s[4 * T - 128], &x[4 * T - 128]); // bug
	commit();
	wait<0>();
	if (T >= 32 && T < 48) y[T] = s[4 * T - 128];
}
KERNEL copy_race_shared(const float *x, float *y, int n) { // reads the last word before it waits
	SHARED __attribute__((aligned(16))) float s[64];
	if (T < 16) copyAsync16(&s[4 * T], &x[4 * T]);
	commit();
	if (T < 16) y[T] = s[4 * T + 3]; // bug
	wait<0>();
}

// Words that two threads have read: the last of these writes them, and the other is not to
// be forgotten for that.
KERNEL readers_warps(const float *x, float *y, int n) {
	SHARED float s[64];
	s[T] = x[T];
	__syncthreads();
	if (T == 3 || T == 40) y[T] = read(&s[5]);
	if (T == 40) s[5] = 1; // bug
}
KERNEL readers_lanes(const float *x, float *y, int n) {
	SHARED float s[64];
	s[T] = x[T];
	__syncthreads();
	if (T == 3) y[T] = read(&s[5]);
	if (T == 4) y[T] = read(&s[5]), s[5] = 1; // bug
}
KERNEL readers_warps_bytes(const float *x, float *y, int n) {
	SHARED unsigned char s[64];
	s[T] = T;
	__syncthreads();
	if (T == 3 || T == 40) y[T] = read(&s[5]);
	if (T == 40) s[5] = 1; // bug
}
KERNEL readers_lanes_bytes(const float *x, float *y, int n) {
	SHARED unsigned char s[64];
	s[T] = T;
	__syncthreads();
	if (T == 3) y[T] = read(&s[5]);
	if (T == 4) y[T] = read(&s[5]), s[5] = 1; // bug
}
KERNEL readers_warps_global(const float *x, float *y, int n) {
	if (T == 3 || T == 40) y[T] = read(&x[5]);
	if (T == 40) ((float *)x)[5] = 1; // bug
}
KERNEL readers_lanes_global(const float *x, float *y, int n) {
	if (T == 3) y[T] = read(&x[5]);
	if (T == 4) y[T] = read(&x[5]), ((float *)x)[5] = 1; // bug
}
KERNEL readers_warps_global_bytes(const float *x, float *y, int n) {
	unsigned char *z = (unsigned char *)x;
	if (T == 3 || T == 40) y[T] = read(&z[5]);
	if (T == 40) z[5] = 1; // bug
}
KERNEL readers_lanes_global_bytes(const float *x, float *y, int n) {
	unsigned char *z = (unsigned char *)x;
	if (T == 3) y[T] = read(&z[5]);
	if (T == 4) y[T] = read(&z[5]), z[5] = 1; // bug
}

// Races between blocks.
KERNEL blocks_write(const float *x, float *y, int n) {
	y[T] = x[T]; // bug
}
KERNEL blocks_sum(const float *x, float *y, int n) {
	if (T == 0) ((int *)x)[0] += 1; // bug
}
KERNEL blocks_neighbour(const float *x, float *y, int n) {
	float *z = (float *)x;
	if (T < 32) z[blockIdx.x * 32 + T] = z[(blockIdx.x * 32 + T + 32) & 63] + 1; // bug
}
KERNEL blocks_atomic(const float *x, float *y, int n) {
	int *z = (int *)x;
	atomicAdd(z, 1);
	if (T == 63) y[blockIdx.x] = z[0]; // bug
}
KERNEL blocks_readers(const float *x, float *y, int n) {
	if (T == 0) y[blockIdx.x] = read(&x[5]);
	if (T == 0 && blockIdx.x == 1) ((float *)x)[5] = 1; // bug
}
KERNEL blocks_readers_bytes(const float *x, float *y, int n) {
	unsigned char *z = (unsigned char *)x;
	if (T == 0) y[blockIdx.x] = read(&z[5]);
	if (T == 0 && blockIdx.x == 1) z[5] = 1; // bug
}

// Barriers that not all come to.
KERNEL barrier_branches(const float *x, float *y, int n) {
	if (T < 32) {
		__syncthreads(); // bug
		y[T] = 1;
	} else {
		y[T] = 2;
		__syncthreads(); // bug
	}
}
KERNEL barrier_lane(const float *x, float *y, int n) {
	if (T == 7) return;
	__syncthreads(); // bug
	y[T] = 1;
}
KERNEL barrier_warp(const float *x, float *y, int n) {
	if (T >= 32) return;
	__syncthreads(); // bug
	y[T] = 1;
}
KERNEL barrier_loop(const float *x, float *y, int n) {
	for (int k = 0; k < (int)(T & 1) + 1; k++) {
		y[T] = k;
		__syncthreads(); // bug
	}
}

// Shuffles that not all come to.
KERNEL shuffle_half(const float *x, float *y, int n) {
	int v = T;
	if (T & 1) v += shuffleXor(v, 1); // bug
	y[T] = v;
}
KERNEL shuffle_gone(const float *x, float *y, int n) {
	if ((T & 31) > 15) return;
	y[T] = shuffleXor(T, 16); // bug
}
KERNEL shuffle_mask(const float *x, float *y, int n) {
	y[T] = shuffleXor(T, 1, 0x0000ffff); // bug
}
KERNEL shuffle_masks(const float *x, float *y, int n) {
	y[T] = shuffleXor(T, 1, T & 1 ? ALL : 0xfffffff0 | 15 >> (T & 2)); // bug
}
KERNEL shuffle_outside(const float *x, float *y, int n) {
	int v = T;
	if ((T & 31) < 16) v = shuffleXor(v, 16, 0xffff); // bug
	y[T] = v;
}
KERNEL syncwarp_half(const float *x, float *y, int n) {
	int v = T;
	if (T & 1) syncWarp(); // bug
	else v = shuffleXor(v, 2); // bug
	y[T] = v;
}
KERNEL shuffle_branches(const float *x, float *y, int n) {
	int v = T;
	if (T & 1) v += shuffleXor(v, 2); // bug
	else v -= shuffleXor(v, 4); // bug
	y[T] = v;
}

// For what the host does wrong.
KERNEL scale(const float *x, float *y, int n) {
	if (T < n) y[T] = x[T] * 2;
}
KERNEL add_one(const float *x, float *y, int n) {
	atomicAdd((int *)y, 1);
}
KERNEL trapped(const float *x, float *y, int n) {
	if (T == 3) __builtin_trap();
	y[T] = 1;
}
KERNEL endless(const float *x, float *y, int n) {
	volatile float *z = y;
	while (n) z[T] = 1;
}
