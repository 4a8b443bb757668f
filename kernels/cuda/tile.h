// Tiles of matrix products. An element of C is one chain in one register, k
// ascending: neither the tile's size nor who has it changes a sum. K is never padded;
// in M and N rows beyond the end repeat the last one, and are not stored.
#pragma once
#include "tree.h"

enum { STEP = 16, PAD = 4 };  // of k per stage; floats that set rows of a stage apart

// Tile is M x N elements of C, TM x TN to a thread: one, or quarters of rows and
// columns in fours, so that shared memory is read 16 bytes at a time.
template <int M_, int N_, int TM_, int TN_, int LEVELS_, int BLOCKS_> struct Tile {
  enum { M = M_, N = N_, TM = TM_, TN = TN_, LEVELS = LEVELS_, BLOCKS = BLOCKS_, THREADS = M / TM * (N / TN), COUNT = TM * TN };
  enum { APART = M + PAD, BPART = N + PAD };
  // stages is memory for two stages of A and of B.
  struct Stages {
    float a[2][STEP * APART], b[2][STEP * BPART];
  };
};

typedef Tile<128, 128, 8, 8, SHALLOW, 2> Large;
typedef Tile<128, 64, 8, 8, SHALLOW, 4> Tall;
typedef Tile<32, 32, 4, 4, SHALLOW, 8> Small;
typedef Tile<16, 16, 1, 1, DEEP, 4> Single;  // any number of groups

// place is element i of T ones of a thread that is at index at of n.
template <int T> DEVICE int place(int at, int n, int i) {
  return T == 1 ? at : (i / 4) * (n * 4) + at * 4 + i % 4;
}
template <class S> DEVICE int row_of(int t, int i) { return place<S::TM>(t / (S::N / S::TN), S::M / S::TM, i); }
template <class S> DEVICE int column_of(int t, int i) { return place<S::TN>(t % (S::N / S::TN), S::N / S::TN, i); }

// pick reads the T values of a thread from one k of a stage.
template <int T> DEVICE void pick(float (&v)[T], u32 stage, int at, int n) {
  if constexpr (T == 1) {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v[0]) : "r"(stage + 4 * at) : "memory");
  } else UNROLL for (int i = 0; i < T; i += 4)
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[i]), "=f"(v[i + 1]), "=f"(v[i + 2]), "=f"(v[i + 3])
                 : "r"(stage + 4 * place<T>(at, n, i)) : "memory");
}

DEVICE void fetch(u32 to, const float *from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory"); }
// fetch4 is fetch of four that are aligned to their size in both.
DEVICE void fetch4(u32 to, const float *from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }
// afresh is v, but no compiler knows it, so what follows from it is computed again.
DEVICE int afresh(int v) {
  asm volatile("mov.u32 %0, %0;" : "+r"(v));
  return v;
}
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void arrive() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// AlongK is an operand whose elements lie side by side along k: NT's A and B, NN's A.
struct AlongK {
  const float *p;
  i64 stride;
  enum { ALONG = 1, FOURS = 0 };
  DEVICE_METHOD AlongK now() const { return *this; }
  DEVICE_METHOD int rows(int all) const { return all; }
  DEVICE_METHOD const float *at(int r, int k) const { return p + r * stride + k; }
};

// AcrossK is one whose elements lie side by side along m or n: four at a time, where they
// are aligned.
struct AcrossK {
  const float *p;
  i64 stride;
  enum { ALONG = 0, FOURS = 1 };
  DEVICE_METHOD AcrossK now() const { return *this; }
  DEVICE_METHOD int rows(int all) const { return all; }
  DEVICE_METHOD const float *at(int r, int k) const { return p + k * stride + r; }
};

// UpToRow is AlongK of which row r has the elements k <= r only.
struct UpToRow : AlongK {
  DEVICE_METHOD UpToRow now() const { return *this; }
  DEVICE_METHOD const float *at(int r, int k) const { return p + r * stride + least(k, r); }
};

// FromRow is AcrossK of which row r has the elements k >= r only.
struct FromRow : AcrossK {
  enum { FOURS = 0 };
  DEVICE_METHOD FromRow now() const { return *this; }
  DEVICE_METHOD const float *at(int r, int k) const { return p + k * stride + least(r, k); }
};

// Later is an operand O whose address and stride lie side by side in shared memory, as does
// the number of its rows. They are read when a stage begins: no register keeps them.
template <class O> struct Later {
  u32 where, count;
  enum { ALONG = O::ALONG, FOURS = O::FOURS };
  DEVICE_METHOD O now() const {
    u64 p, stride;
    asm volatile("ld.shared.v2.u64 {%0, %1}, [%2];" : "=l"(p), "=l"(stride) : "r"(where) : "memory");
    return O{(const float *)p, (i64)stride};
  }
  DEVICE_METHOD int rows(int) const {
    int n;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(n) : "r"(count) : "memory");
    return n;
  }
};

// Which products of a chain there are: all, those with k <= row, those with k >= row.
enum Mask { ALL, UP_TO_ROW, FROM_ROW };

// stage begins to copy STEP of k, from k0 to end at most, of R rows from r0 on.
template <class S, int R, int PART, class O> DEVICE void stage(u32 to, const O &operand, int r0, int rows, int k0, int end) {
  int t = afresh(thread());  // or addresses of all stages would be kept, for want of which chains spill
  auto o = operand.now();
  rows = operand.rows(rows);
  if constexpr (O::FOURS && R * STEP / 4 >= S::THREADS) {
    if (r0 + R <= rows && (((u64)(o.p + r0) & 15) | ((u64)o.stride & 3)) == 0) {
      UNROLL for (int i = 0; i < R * STEP / 4 / S::THREADS; i++) {
        int at = i * S::THREADS + t, k = at / (R / 4), r = at % (R / 4) * 4;
        fetch4(to + 4 * (k * PART + r), o.at(r0 + r, least(k0 + k, end - 1)));
      }
      return;
    }
  }
  UNROLL for (int i = 0; i < R * STEP / S::THREADS; i++) {
    int at = i * S::THREADS + t;
    int k = O::ALONG ? at % STEP : at / R, r = O::ALONG ? at / STEP : at % R;
    fetch(to + 4 * (k * PART + r), o.at(least(r0 + r, rows - 1), least(k0 + k, end - 1)));
  }
}

// step continues all chains of a thread by one k.
template <class S, Mask MASK> DEVICE void step(float (&c)[S::COUNT], u32 a, u32 b, int kk, int m0, int k) {
  float x[S::TM], y[S::TN];
  pick<S::TM>(x, a + 4 * kk * S::APART, thread() / (S::N / S::TN), S::M / S::TM);
  pick<S::TN>(y, b + 4 * kk * S::BPART, thread() % (S::N / S::TN), S::N / S::TN);
  UNROLL for (int i = 0; i < S::TM; i++) {
    int row = m0 + row_of<S>(thread(), i);
    bool on = MASK == ALL || (MASK == UP_TO_ROW ? k <= row : k >= row);
    UNROLL for (int j = 0; j < S::TN; j++) {
      float f = fused(x[i], y[j], c[i * S::TN + j]);
      c[i * S::TN + j] = on ? f : c[i * S::TN + j];
    }
  }
}

// Chains is where a thread is in the tile of C from (m0, n0) on.
template <class S> struct Chains {
  typename S::Stages &stages;
  int m0, n0, rows, columns;
  int turn;  // which stages come next
};

// extend continues the chains c through k from lo to hi.
template <class S, Mask MASK, class A, class B>
DEVICE void extend(Chains<S> &at, float (&c)[S::COUNT], const A &a, const B &b, int lo, int hi) {
  if (lo >= hi) return;
  u32 sa = shared_address(at.stages.a[0]), sb = shared_address(at.stages.b[0]);
  const u32 as = 4 * STEP * S::APART, bs = 4 * STEP * S::BPART;
  stage<S, S::M, S::APART>(sa + at.turn * as, a, at.m0, at.rows, lo, hi);
  stage<S, S::N, S::BPART>(sb + at.turn * bs, b, at.n0, at.columns, lo, hi);
  commit();
  NO_UNROLL for (int k = lo; k < hi; k += STEP) {
    arrive();
    barrier();  // all of this stage is there, and nobody reads the other one any more
    u32 ta = sa + at.turn * as, tb = sb + at.turn * bs;
    at.turn ^= 1;
    if (k + STEP < hi) {
      stage<S, S::M, S::APART>(sa + at.turn * as, a, at.m0, at.rows, k + STEP, hi);
      stage<S, S::N, S::BPART>(sb + at.turn * bs, b, at.n0, at.columns, k + STEP, hi);
      commit();
    }
    bool whole = k + STEP <= hi;
    if (MASK == UP_TO_ROW) whole = whole && k + STEP - 1 <= at.m0;
    if (MASK == FROM_ROW) whole = whole && k >= at.m0 + S::M - 1;
    if (whole) {
      UNROLL for (int kk = 0; kk < STEP; kk++) step<S, ALL>(c, ta, tb, kk, at.m0, 0);
    } else {
      int n = least(STEP, hi - k);
      NO_UNROLL for (int kk = 0; kk < n; kk++) step<S, MASK>(c, ta, tb, kk, at.m0, k + kk);
    }
  }
}

template <class S> DEVICE void clear(float (&c)[S::COUNT]) {
  UNROLL for (int i = 0; i < S::COUNT; i++) c[i] = 0.0f;
}

// each calls f(row, column, chain) for the elements of C that are there.
template <class S, class F> DEVICE void each(const Chains<S> &at, float (&c)[S::COUNT], F f) {
  int t = afresh(thread());
  UNROLL for (int i = 0; i < S::TM; i++)
    UNROLL for (int j = 0; j < S::TN; j++) {
      int row = at.m0 + row_of<S>(t, i), column = at.n0 + column_of<S>(t, j);
      if (row < at.rows && column < at.columns) f(row, column, c[i * S::TN + j]);
    }
}

// TILE_AT is tile number of an m x n product, where those of a row of C lie side by side.
#define TILE_AT(S, number, m, n)                                             \
  SHARED static typename S::Stages stages;                                   \
  int across = ((n) + S::N - 1) / S::N;                                      \
  Chains<S> at = {stages, (int)((number) / across) * S::M, (int)((number) % across) * S::N, m, n, 0}; \
  float c[S::COUNT];                                                         \
  clear<S>(c)
