// Kernels that take element i from element i.
#include "gpu.h"

KERNEL(VECTOR) fill(u32 *x, u32 v, i64 n) {
  EACH_ELEMENT(i, n) x[i] = v;
}

KERNEL(VECTOR) copy(u32 *dst, const u32 *src, i64 n) {
  EACH_ELEMENT(i, n) dst[i] = src[i];
}

KERNEL(VECTOR) add_vectors(float *dst, const float *x, const float *y, i64 n) {
  EACH_ELEMENT(i, n) dst[i] = add(x[i], y[i]);
}

KERNEL(VECTOR) scale(float *dst, const float *x, float s, i64 n) {
  EACH_ELEMENT(i, n) dst[i] = mul(x[i], s);
}

KERNEL(VECTOR) swiglu(float *h, const float *z, const float *u, i64 n) {
  EACH_ELEMENT(i, n) {
    float v = z[i];
    h[i] = mul(mul(v, sigmoid(v)), u[i]);
  }
}

// Outputs may lie on inputs: all that a thread reads of an element comes before what
// it writes.
KERNEL(VECTOR) swiglu_grad(float *dz, float *du, const float *dh, const float *z, const float *u, i64 n) {
  EACH_ELEMENT(i, n) {
    float v = z[i], w = u[i], g = dh[i], sg = sigmoid(v);
    du[i] = mul(g, mul(v, sg));
    dz[i] = mul(mul(g, w), mul(sg, fused(v, sub(1.0f, sg), 1.0f)));
  }
}

// minus_lr is -lr; r1 and r2 are 1-beta, formed in float64.
KERNEL(VECTOR) adamw(float *w, float *m, float *v, const float *g, i64 n, float coef, float b1, float r1, float b2,
                     float r2, float c1, float c2, float eps, float decay, float minus_lr) {
  EACH_ELEMENT(i, n) {
    float x = mul(g[i], coef), weight = w[i];
    float mi = fused(r1, x, mul(b1, m[i]));
    float vi = fused(r2, mul(x, x), mul(b2, v[i]));
    m[i] = mi;
    v[i] = vi;
    float u = quotient(quotient(mi, c1), add(root(quotient(vi, c2)), eps));
    w[i] = fused(minus_lr, fused(decay, weight, u), weight);
  }
}

KERNEL(VECTOR) sgd(float *w, float *b, const float *g, i64 n, float coef, float mu, float decay, float minus_lr) {
  EACH_ELEMENT(i, n) {
    float weight = w[i], x = fused(decay, weight, mul(g[i], coef));
    float bi = fused(mu, b[i], x);
    b[i] = bi;
    w[i] = fused(minus_lr, bi, weight);
  }
}
