// RMSNorm: a warp has a row, and its lanes are those of the definition.
#include "gpu.h"

enum { WARPS = 8 };

KERNEL(32 * WARPS) rmsnorm(float *y, float *rstd, const float *x, const float *w, int rows, int cols, float h, float eps) {
  i64 i = (i64)block() * WARPS + warp();
  if (i >= rows) return;
  const float *in = x + i * cols;
  float s = 0.0f;
  for (int j = lane(); j < cols; j += 32) s = fused(in[j], in[j], s);
  float r = quotient(1.0f, root(add(quotient(fold(s), h), eps)));
  if (lane() == 0) rstd[i] = r;
  for (int j = lane(); j < cols; j += 32) y[i * cols + j] = mul(mul(in[j], r), w[j]);
}

// dx may be dy or res: a thread reads no element after it has written it. res may be
// null.
KERNEL(32 * WARPS) rmsnorm_grad_dx(float *dx, const float *dy, const float *x, const float *rstd, const float *w, const float *res,
                                   int rows, int cols, float h) {
  i64 i = (i64)block() * WARPS + warp();
  if (i >= rows) return;
  i64 at = i * cols;
  float r = rstd[i], s = 0.0f;
  for (int j = lane(); j < cols; j += 32) s = fused(mul(dy[at + j], w[j]), mul(x[at + j], r), s);
  float c = quotient(fold(s), h);
  for (int j = lane(); j < cols; j += 32) {
    float d = mul(fused(-c, mul(x[at + j], r), mul(dy[at + j], w[j])), r);
    dx[at + j] = res ? add(res[at + j], d) : d;
  }
}

// One chain per column, rows ascending.
KERNEL(VECTOR) rmsnorm_grad_dw(float *dw, const float *dy, const float *x, const float *rstd, int rows, int cols) {
  int j = block() * threads() + thread();
  if (j >= cols) return;
  float s = dw[j];
  UNROLL_BY_4 for (int i = 0; i < rows; i++) {
    i64 at = (i64)i * cols + j;
    s = fused(dy[at], mul(x[at], rstd[i]), s);
  }
  dw[j] = s;
}
