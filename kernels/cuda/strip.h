// Sums over the rows of 32 columns: a strip is a block's. Each column is one chain of one
// lane of the first warp, rows ascending; the other warps load what comes next meanwhile.
#pragma once
#include "gpu.h"

enum { STRIP = 32, LOADERS = VECTOR / 32 - 1 };

// Strip is memory for CHUNK rows of V values of each column, while as many are loaded.
template <int V, int CHUNK> struct Strip {
  float part[2][CHUNK][V][STRIP];
};

// load has warp w of n put rows first to first+CHUNK of column j into part; get(v, i) gives
// the values of row i.
template <int V, int CHUNK, class F>
DEVICE void load(float (&part)[CHUNK][V][STRIP], int first, int rows, int w, int n, F get) {
  for (int r = w; r < CHUNK && first + r < rows; r += n) {
    float v[V];
    get(v, first + r);
    UNROLL for (int k = 0; k < V; k++) part[r][k][lane()] = v[k];
  }
}

// descend continues s through the rows of column j: add(s, v) for the values of each. Its
// result is that of the first warp. here says whether there is a column j.
template <int V, int CHUNK, class F, class G>
DEVICE float descend(Strip<V, CHUNK> &strip, float s, bool here, int rows, F get, G add_row) {
  if (here) load<V, CHUNK>(strip.part[0], 0, rows, warp(), LOADERS + 1, get);
  barrier();
  NO_UNROLL for (int first = 0, turn = 0; first < rows; first += CHUNK, turn ^= 1) {
    if (warp() > 0 && here) load<V, CHUNK>(strip.part[turn ^ 1], first + CHUNK, rows, warp() - 1, LOADERS, get);
    if (warp() == 0 && here) {
      int n = least(CHUNK, rows - first);
      UNROLL_BY_4 for (int r = 0; r < n; r++) {
        float v[V];
        UNROLL for (int k = 0; k < V; k++) v[k] = strip.part[turn][r][k][lane()];
        s = add_row(s, v);
      }
    }
    barrier();
  }
  return s;
}
