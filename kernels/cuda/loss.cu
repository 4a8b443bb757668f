// The loss over logits, a warp to a row but for the gradient.
#include "gpu.h"
#include "tree.h"

enum { WARPS = 8 };

// Of equal values, which zeros of two signs are too, the first is the maximum.
KERNEL(32 * WARPS) logits_max(float *top, float *target, const float *z, const int *targets, int first, int rows, int cols) {
  i64 i = (i64)block() * WARPS + warp();
  if (i >= rows) return;
  const float *row = z + i * cols;
  float m = -infinity();
  int at = 0x7fffffff;
  for (int j = lane(); j < cols; j += 32)
    if (row[j] > m) m = row[j], at = j;
  UNROLL for (int d = 16; d >= 1; d >>= 1) {
    float o = shuffle_xor(m, d);
    int oat = shuffle_xor(at, d);
    if (o > m || (o == m && oat < at)) m = o, at = oat;
  }
  if (lane() != 0) return;
  top[i] = m;
  int y = targets[i];
  i64 v = (i64)y - first;
  target[i] = y >= 0 && v >= 0 && v < cols ? add(row[v], 0.0f) : 0.0f;
}

// bounds holds groups+1 ascending columns.
KERNEL(32 * WARPS) logits_exp_sum(float *sum, float *z, const float *top, const int *bounds, int groups, int rows, int cols) {
  i64 i = (i64)block() * WARPS + warp();
  if (i >= rows) return;
  float *row = z + i * cols;
  float m = top[i];
  Tree<1, DEEP> tree;
  tree.height = 0;
  float s[1];
  NO_UNROLL for (int g = 0; g < groups; g++) {
    s[0] = 0.0f;
    for (int j = bounds[g] + lane(), hi = bounds[g + 1]; j < hi; j += 32) {
      float e = exponential(sub(row[j], m));
      row[j] = e;
      s[0] = add(s[0], e);
    }
    s[0] = fold(s[0]);
    leaf(tree, s, g, groups);
  }
  if (lane() == 0) sum[i] = s[0];
}

KERNEL(VECTOR) cross_entropy_nll(float *nll, const float *sum, const float *top, const float *target, const int *targets, int rows) {
  int i = block() * threads() + thread();
  if (i >= rows) return;
  nll[i] = targets[i] < 0 ? 0.0f : sub(add(top[i], logarithm(sum[i])), target[i]);
}

KERNEL(VECTOR) cross_entropy_grad(float *z, const float *sum, const int *targets, int first, int rows, int cols, float inv) {
  EACH_OF_ROWS(i, j, rows, cols) {
    float *e = z + (i64)i * cols + j;
    int y = targets[i];
    float g = 0.0f;
    if (y >= 0) {
      float p = quotient(*e, sum[i]);
      if ((i64)y - first == j) p = sub(p, 1.0f);
      g = mul(p, inv);
    }
    *e = g;
  }
}
