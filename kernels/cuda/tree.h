// The canonical tree while its leaves come one after another.
#pragma once
#include "gpu.h"

// SHALLOW levels are enough for 15 leaves, DEEP ones for 2^31.
enum { SHALLOW = 3, DEEP = 31 };

// Tree is a binary counter: its stack holds sums of 2^k leaves, of N elements each,
// in local memory.
template <int N, int LEVELS> struct Tree {
  float below[LEVELS][N];
  int height;
};

// leaf takes leaf i of n; after the last one v is the sum of all. The last is never
// stored, so n leaves need one level less than n has bits.
template <int N, int LEVELS> DEVICE void leaf(Tree<N, LEVELS> &t, float (&v)[N], int i, int n) {
  bool last = i == n - 1;
  NO_UNROLL for (int c = i + 1; t.height > 0 && (last || (c & 1) == 0); c >>= 1) {
    t.height--;
    UNROLL for (int k = 0; k < N; k++) v[k] = add(t.below[t.height][k], v[k]);
  }
  if (last) return;
  UNROLL for (int k = 0; k < N; k++) t.below[t.height][k] = v[k];
  t.height++;
}
