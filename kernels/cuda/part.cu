// What shows that each multiprocessor computes, and which of them does not.
#include "gpu.h"

enum { PART = 128, ROUNDS = 256 }; // of kernels.PartSum

// multiprocessor is the number of the one that this block runs on.
DEVICE u32 multiprocessor() {
  u32 n;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(n));
  return n;
}

// Each block computes kernels.PartSum of the seed, and says where: out has two words of each.
KERNEL(PART) part(u32 *out, u32 seed) {
  SHARED static u32 state[PART];
  u32 u = seed + (thread() + 1) * 0x9e3779b9u;
  float x = as_float(0x3f800000u | u >> 9);
  NO_UNROLL for (int i = 0; i < ROUNDS; i++) {
    float y = as_float(0x3f800000u | (u & 0x7fffffu));
    x = root(quotient(fused(x, y, 1.0f), mul(add(x, y), 0.5f)));
    u = u * 1664525u + bits_of(x);
    if (i % 16 == 15) {
      barrier();
      state[thread()] = u;
      barrier();
      u ^= state[(thread() + i) % PART] >> 5;
    }
  }
  barrier();
  state[thread()] = u;
  barrier();
  if (thread() > 0) return;
  u32 sum = 0;
  NO_UNROLL for (int i = 0; i < PART; i++) sum = sum * 31 + state[i];
  out[2 * block()] = multiprocessor();
  out[2 * block() + 1] = sum;
}
