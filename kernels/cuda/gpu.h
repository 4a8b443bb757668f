// What every kernel is written in: the one header, with names of this project only.
// Two front ends read it: clang without a CUDA toolkit, whose PTX is shipped, and
// nvcc, whose PTX is held against it.
//
// All float arithmetic goes through the functions below. Each rounds once (.rn),
// which no assembler may fuse with another one; a plain * or + of floats it might.
#pragma once

#if defined(__clang__)
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL(threads) extern "C" __attribute__((global)) __attribute__((launch_bounds(threads))) void
#define KERNEL_OF(threads, blocks) extern "C" __attribute__((global)) __attribute__((launch_bounds(threads, blocks))) void
#define SHARED __attribute__((shared)) __attribute__((aligned(16)))
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_BY_4 _Pragma("clang loop unroll_count(4)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#define DEVICE_METHOD __attribute__((device)) inline __attribute__((always_inline))
DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE unsigned block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE unsigned blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE unsigned block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE unsigned blocks_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
DEVICE void barrier() { __syncthreads(); }
DEVICE float add(float a, float b) { return __nvvm_add_rn_f(a, b); }
DEVICE float mul(float a, float b) { return __nvvm_mul_rn_f(a, b); }
// fused is a*b + c, rounded once; quotient is a/b.
DEVICE float fused(float a, float b, float c) { return __nvvm_fma_rn_f(a, b, c); }
DEVICE float quotient(float a, float b) { return __nvvm_div_rn_f(a, b); }
DEVICE float root(float a) { return __nvvm_sqrt_rn_f(a); }
DEVICE float as_float(unsigned u) { return __nvvm_bitcast_i2f((int)u); }
DEVICE unsigned bits_of(float f) { return (unsigned)__nvvm_bitcast_f2i(f); }
DEVICE float shuffle_xor(float v, int mask) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, mask, 0x1f); }
DEVICE int shuffle_xor(int v, int mask) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, mask, 0x1f); }
#else
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define KERNEL_OF(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define SHARED __shared__ __align__(16)
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_4 _Pragma("unroll 4")
#define NO_UNROLL _Pragma("unroll 1")
#define DEVICE_METHOD __device__ __forceinline__
DEVICE int thread() { return threadIdx.x; }
DEVICE int threads() { return blockDim.x; }
DEVICE unsigned block() { return blockIdx.x; }
DEVICE unsigned blocks() { return gridDim.x; }
DEVICE unsigned block_y() { return blockIdx.y; }
DEVICE unsigned blocks_y() { return gridDim.y; }
DEVICE void barrier() { __syncthreads(); }
DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float quotient(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float root(float a) { return __fsqrt_rn(a); }
DEVICE float as_float(unsigned u) { return __uint_as_float(u); }
DEVICE unsigned bits_of(float f) { return __float_as_uint(f); }
DEVICE float shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE int shuffle_xor(int v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;

DEVICE float infinity() { return as_float(0x7f800000u); }
DEVICE float sub(float a, float b) { return add(a, -b); }
DEVICE int least(int a, int b) { return a < b ? a : b; }
DEVICE int most(int a, int b) { return a > b ? a : b; }

// lane and warp are the place of a thread in its warp, and of the warp in its block.
DEVICE int lane() { return thread() & 31; }
DEVICE int warp() { return thread() >> 5; }

// fold is the second half of lanes(): l_i = l_i + l_(i+d) for d = 16, 8, 4, 2, 1.
// Addition commutes, so every lane ends with what lane 0 does.
DEVICE float fold(float v) {
  UNROLL for (int d = 16; d >= 1; d >>= 1) v = add(v, shuffle_xor(v, d));
  return v;
}

// fold of integers: any order gives the same sum.
DEVICE u64 fold(u64 v) {
  UNROLL for (int d = 16; d >= 1; d >>= 1) {
    u32 lo = shuffle_xor((int)(u32)v, d), hi = shuffle_xor((int)(u32)(v >> 32), d);
    v += (u64)hi << 32 | lo;
  }
  return v;
}

// accumulate adds v to what lies at p, by an atomic operation.
DEVICE void accumulate(u64 *p, u64 v) { asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }

// shared_address is the address of shared memory as instructions of PTX take it.
DEVICE u32 shared_address(const void *p) {
  u32 a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}

// power2 is 2^k for -126 <= k <= 127.
DEVICE float power2(int k) { return as_float((u32)(k + 127) << 23); }

// exponential is ref.Exp32.
DEVICE float exponential(float x) {
  if (x > 0x1.62e42ep6f) return infinity();
  if (x < -104.0f) return 0.0f;
  if (x != x) return x;
  const float shifter = 0x1.8p23f;  // adding it rounds to an integer
  float n = sub(fused(x, 0x1.715476p0f, shifter), shifter);
  float r = fused(n, -0x1.62e4p-1f, x);
  r = fused(n, -0x1.7f7d1cp-20f, r);
  float p = fused(0x1.694p-10f, r, 0x1.125edcp-7f);
  p = fused(p, r, 0x1.555b5ap-5f);
  p = fused(p, r, 0x1.55545p-3f);
  p = fused(p, r, 0x1.fffff6p-2f);
  p = fused(p, r, 1.0f);
  p = fused(p, r, 1.0f);
  int k = (int)n, h = k >> 1;
  return mul(mul(p, power2(h)), power2(k - h));
}

// logarithm is ref.Log32.
DEVICE float logarithm(float x) {
  float n = 0.0f;
  if (x != x || x > 0x1.fffffep127f) return x;
  if (x == 0.0f) return -infinity();
  if (x < 0.0f) return as_float(0x7fc00000u);
  if (x < 0x1p-126f) {
    x = mul(x, 0x1p23f);
    n = -23.0f;
  }
  u32 u = bits_of(x);
  u32 e = (u - 0x3f2aaaabu) & 0xff800000u;  // n as an exponent field; the constant is 2/3
  n = add(n, (float)((int)e >> 23));
  float f = sub(as_float(u - e), 1.0f);
  float p = fused(0x1.ebd038p-4f, f, -0x1.071124p-3f);
  p = fused(p, f, 0x1.b87e4ep-4f);
  p = fused(p, f, -0x1.f389fcp-4f);
  p = fused(p, f, 0x1.24f48ep-3f);
  p = fused(p, f, -0x1.559908p-3f);
  p = fused(p, f, 0x1.99977ep-3f);
  p = fused(p, f, -0x1.ffff12p-3f);
  p = fused(p, f, 0x1.555556p-2f);
  p = fused(p, f, -0.5f);
  p = fused(p, mul(f, f), mul(n, -0x1.05c61p-29f));
  return fused(n, 0x1.62e43p-1f, add(f, p));
}

// sigmoid is 1/(1+exp(-z)).
DEVICE float sigmoid(float z) { return quotient(1.0f, add(1.0f, exponential(-z))); }

// A vector kernel gives a block of 256 threads 1024 elements, four to a thread.
enum { VECTOR = 256, EACH = 4 };

// EACH_ELEMENT runs its body for the elements i of n that are this thread's.
#define EACH_ELEMENT(i, n)                                                    \
  UNROLL for (int _u = 0; _u < EACH; _u++)                                    \
    if (i64 i = (i64)block() * (VECTOR * EACH) + _u * VECTOR + thread(); i < (n))

// EACH_OF_ROWS runs its body for the elements (i, j) of rows x cols that are this
// thread's: blocks() cover the columns, blocks_y() share the rows.
#define EACH_OF_ROWS(i, j, rows, cols)                                        \
  if (int j = block() * threads() + thread(); j < (cols))                     \
    for (int i = block_y(); i < (rows); i += blocks_y())
