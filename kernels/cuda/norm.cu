// RMSNorm: a warp has a row, and its lanes are those of the definition.
#include "gpu.h"
#include "strip.h"

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

KERNEL(VECTOR) rmsnorm_grad_dw(float *dw, const float *dy, const float *x, const float *rstd, int rows, int cols) {
  SHARED static Strip<2, 32> strip;
  int j = block() * STRIP + lane();
  bool here = j < cols, sums = here && warp() == 0;
  float s = descend(
      strip, sums ? dw[j] : 0.0f, here, rows,
      [=](float (&v)[2], int i) {
        i64 at = (i64)i * cols + j;
        v[0] = dy[at];
        v[1] = mul(x[at], rstd[i]);
      },
      [](float s, float (&v)[2]) { return fused(v[0], v[1], s); });
  if (sums) dw[j] = s;
}
