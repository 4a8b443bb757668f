// What the kernels of these tests use of CUDA, for clang without CUDA's headers.
#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define DEVICE static __device__ inline __attribute__((always_inline))
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define REGISTER(T, R) \
	struct T { \
		__declspec(property(get = getx)) unsigned x; \
		__declspec(property(get = gety)) unsigned y; \
		__declspec(property(get = getz)) unsigned z; \
		static __device__ inline __attribute__((always_inline)) unsigned getx() { return __nvvm_read_ptx_sreg_##R##_x(); } \
		static __device__ inline __attribute__((always_inline)) unsigned gety() { return __nvvm_read_ptx_sreg_##R##_y(); } \
		static __device__ inline __attribute__((always_inline)) unsigned getz() { return __nvvm_read_ptx_sreg_##R##_z(); } \
	};
REGISTER(ThreadIdx, tid) REGISTER(BlockIdx, ctaid) REGISTER(BlockDim, ntid) REGISTER(GridDim, nctaid)
extern const __device__ __attribute__((weak)) ThreadIdx threadIdx;
extern const __device__ __attribute__((weak)) BlockIdx blockIdx;
extern const __device__ __attribute__((weak)) BlockDim blockDim;
extern const __device__ __attribute__((weak)) GridDim gridDim;
typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned long size_t;
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
#define DYNAMIC(type, name) extern __shared__ __attribute__((aligned(16))) type name[]
#define ALL 0xffffffffu
DEVICE void syncWarp(u32 mask = ALL) { __nvvm_bar_warp_sync(mask); }
DEVICE int shuffleXor(int v, int m, u32 mask = ALL) { return __nvvm_shfl_sync_bfly_i32(mask, v, m, 31); }
DEVICE int shuffleDown(int v, int d, u32 mask = ALL) { return __nvvm_shfl_sync_down_i32(mask, v, d, 31); }
DEVICE int shuffle(int v, int l, u32 mask = ALL) { return __nvvm_shfl_sync_idx_i32(mask, v, l, 31); }
DEVICE int atomicAdd(int *p, int v) { return __nvvm_atom_add_gen_i(p, v); }
DEVICE float fma(float a, float b, float c) { return __nvvm_fma_rn_f(a, b, c); }
// A read that the compiler leaves where it is.
DEVICE float read(const float *p) {
	float v;
	asm volatile("ld.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
	return v;
}
DEVICE u32 read(const unsigned char *p) {
	u32 v;
	asm volatile("ld.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}
DEVICE u32 sharedAddress(const void *p) {
	u32 r;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p));
	return r;
}
DEVICE void copyAsync(void *to, const void *from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sharedAddress(to)), "l"(from) : "memory"); }
DEVICE void copyAsync16(void *to, const void *from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sharedAddress(to)), "l"(from) : "memory"); }
// Of the 16 bytes the first n are read, the others are 0.
DEVICE void copyAsyncPart(void *to, const void *from, u32 n) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAddress(to)), "l"(from), "r"(n) : "memory"); }
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
