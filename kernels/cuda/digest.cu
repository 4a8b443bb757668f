// Sums of integers over the elements of a tensor: any order gives the same.
#include "gpu.h"

enum { SPECIAL = 255, COPIES = 8, SQUARES = 16384 };

// Mixed is two sums and a count.
struct Mixed {
  u64 a, b, n;
};

// mix adds kernels.Mix to m.
DEVICE void mix(Mixed &m, u64 id, u64 index, u64 bits) {
  u64 x = (id + (index + 1) * 0x9e3779b97f4a7c15ull) ^ (bits * 0xbf58476d1ce4e5b9ull + 0xbf58476d1ce4e5b9ull);
  x = (x ^ x >> 32) * 0x94d049bb133111ebull;
  u64 a = x ^ x >> 29;
  u64 y = (a ^ a >> 32) * 0xff51afd7ed558ccdull;
  m.a += a;
  m.b += y ^ y >> 32;
}

// canonical gives every NaN the same bits.
DEVICE u32 canonical(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits; }

// deliver adds what a block has found to out.
DEVICE void deliver(u64 *out, const Mixed &m) {
  SHARED static u64 part[3][VECTOR / 32];
  u64 a = fold(m.a), b = fold(m.b), n = fold(m.n);
  if (lane() == 0) part[0][warp()] = a, part[1][warp()] = b, part[2][warp()] = n;
  barrier();
  if (thread() >= 3) return;
  u64 s = 0;
  UNROLL for (int w = 0; w < VECTOR / 32; w++) s += part[thread()][w];
  if (s != 0) accumulate(out + thread(), s);
}

// blocks() share the columns, blocks_y() the rows. apart is what the rows are apart in the
// logical tensor.
KERNEL(VECTOR) hash(u64 *out, const u32 *x, i64 stride, int rows, int cols, u64 id, u64 first, u64 apart) {
  Mixed m = {0, 0, 0};
  for (int i = block_y(); i < rows; i += blocks_y())
    for (int j = block() * VECTOR + thread(); j < cols; j += blocks() * VECTOR) {
      u32 bits = canonical(x[i * stride + j]);
      mix(m, id, first + i * apart + j, bits);
      m.n += (bits & 0x7f800000u) == 0x7f800000u;
    }
  deliver(out, m);
}

// out[2] counts the elements that differ.
KERNEL(VECTOR) hash_changed(u64 *out, const u32 *x, i64 stride, const u32 *old, i64 old_stride, int rows, int cols, u64 id,
                            u64 first, u64 apart) {
  Mixed m = {0, 0, 0};
  for (int i = block_y(); i < rows; i += blocks_y())
    for (int j = block() * VECTOR + thread(); j < cols; j += blocks() * VECTOR) {
      if (canonical(x[i * stride + j]) == canonical(old[i * old_stride + j])) continue;
      mix(m, id, first + i * apart + j, 1);
      m.n++;
    }
  deliver(out, m);
}

DEVICE void count(u32 *bin, u32 v) { asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(shared_address(bin)), "r"(v) : "memory"); }

// Squares of 24-bit mantissas, one bin for each exponent: out[2e] is the sum of their
// low 32 bits, out[2e+1] of the rest. out[510] counts infinities, out[511] NaN. A
// block takes SQUARES elements and keeps each sum in three parts of 16 bits, in
// several copies, so that neighbours seldom wait for each other.
KERNEL(VECTOR) sum_squares(u64 *out, const u32 *x, i64 n) {
  SHARED static u32 bins[COPIES][3][256];
  for (int i = thread(); i < COPIES * 3 * 256; i += VECTOR) (&bins[0][0][0])[i] = 0;
  barrier();
  i64 lo = (i64)block() * SQUARES, hi = lo + SQUARES < n ? lo + SQUARES : n;
  u32(*own)[256] = bins[thread() % COPIES];
  for (i64 i = lo + thread(); i < hi; i += VECTOR) {
    u32 bits = x[i], e = bits >> 23 & 255, m = bits & 0x7fffffu;
    if (e == SPECIAL) {
      count(&own[m != 0][SPECIAL], 1);
      continue;
    }
    if (e != 0) m |= 1u << 23;
    u64 s = (u64)m * m;
    if (s == 0) continue;
    count(&own[0][e], (u32)s & 0xffffu);
    count(&own[1][e], (u32)(s >> 16) & 0xffffu);
    count(&own[2][e], (u32)(s >> 32));
  }
  barrier();
  int e = thread();
  u64 s[3] = {0, 0, 0};
  UNROLL for (int c = 0; c < COPIES; c++)
    UNROLL for (int k = 0; k < 3; k++) s[k] += bins[c][k][e];
  if ((s[0] | s[1] | s[2]) == 0) return;
  if (e == SPECIAL) {
    accumulate(out + 2 * e, s[0]);
    accumulate(out + 2 * e + 1, s[1]);
    return;
  }
  u64 low = s[0] + ((s[1] & 0xffffu) << 16), high = s[2] + (s[1] >> 16);
  accumulate(out + 2 * e, low);
  accumulate(out + 2 * e + 1, high);
}
