// Kernels over rows that share a vector, or a table.
#include "gpu.h"
#include "strip.h"

KERNEL(VECTOR) add_bias(float *y, i64 stride, const float *b, int rows, int cols) {
  EACH_OF_ROWS(i, j, rows, cols) y[i * stride + j] = add(y[i * stride + j], b[j]);
}

KERNEL(VECTOR) residual(float *dst, const float *x, const float *y, const float *b, int rows, int cols) {
  EACH_OF_ROWS(i, j, rows, cols) {
    i64 at = (i64)i * cols + j;
    dst[at] = add(x[at], add(y[at], b[j]));
  }
}

KERNEL(VECTOR) column_sum(float *dst, const float *x, i64 stride, int rows, int cols) {
  SHARED static Strip<1, 64> strip;
  int j = block() * STRIP + lane();
  bool here = j < cols, sums = here && warp() == 0;
  float s = descend(
      strip, sums ? dst[j] : 0.0f, here, rows, [=](float (&v)[1], int i) { v[0] = x[i * stride + j]; },
      [](float s, float (&v)[1]) { return add(s, v[0]); });
  if (sums) dst[j] = s;
}

// Columns are the pairs of a row: heads*half of them. sign is the sign bit of the
// inverse.
KERNEL(VECTOR) rope(float *x, const float *cosine, const float *sine, int rows, int pairs, int half, int positions, u32 sign) {
  EACH_OF_ROWS(i, j, rows, pairs) {
    int head = j / half, k = j - head * half;
    i64 at = (i64)(i % positions) * half + k;
    float *lo = x + (i64)i * 2 * pairs + (i64)2 * head * half + k, *hi = lo + half;
    float c = cosine[at], s = as_float(bits_of(sine[at]) ^ sign), a = *lo, b = *hi;
    *lo = fused(-b, s, mul(a, c));
    *hi = fused(a, s, mul(b, c));
  }
}

KERNEL(VECTOR) embedding(float *x, const float *table, const int *tokens, int first, int held, int rows, int cols) {
  EACH_OF_ROWS(i, j, rows, cols) {
    int token = tokens[i];
    i64 v = (i64)token - first;
    bool here = token >= 0 && v >= 0 && v < held;
    x[(i64)i * cols + j] = here ? add(table[v * cols + j], 0.0f) : 0.0f;  // -0 becomes +0
  }
}

// The positions of row list[i] of the table, ascending, are at[start[i]] to
// at[start[i+1]-1]: one chain per element of that row.
KERNEL(VECTOR) embedding_grad(float *dtable, const float *dx, const int *list, const int *start, const int *at, int rows, int cols) {
  EACH_OF_ROWS(i, j, rows, cols) {
    float *to = dtable + (i64)list[i] * cols + j;
    float s = *to;
    for (int k = start[i], end = start[i + 1]; k < end; k++) s = add(s, dx[(i64)at[k] * cols + j]);
    *to = s;
  }
}
