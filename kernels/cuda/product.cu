// The matrix products, each for tiles of several sizes.
#include "tile.h"

// Bounds cut [0, K) into groups; without bounds it is one group.
struct Bounds {
  const int *at;
  int k;
  DEVICE_METHOD int lo(int g) const { return at ? at[g] : 0; }
  DEVICE_METHOD int hi(int g) const { return at ? at[g + 1] : k; }
};

template <class S>
DEVICE void nt(float *out, i64 apart, const float *a, i64 lda, const float *b, i64 ldb, Bounds bounds, int groups, int m, int n) {
  TILE_AT(S, m, n);
  AlongK x = {a, lda}, y = {b, ldb};
  Tree<S::COUNT, S::LEVELS> tree;
  tree.height = 0;
  NO_UNROLL for (int g = 0; g < groups; g++) {
    clear<S>(c);
    extend<S, ALL>(at, c, x, y, bounds.lo(g), bounds.hi(g));
    leaf(tree, c, g, groups);
  }
  each<S>(at, c, [=](int i, int j, float v) { out[i * apart + j] = v; });
}

// Term is one pair of operands; bounds is an address, or 0 for one group.
struct Term {
  u64 a, lda, b, ldb, bounds, k;
};

template <class S> DEVICE void nn(float *out, i64 apart, const Term *terms, int count, int groups, int m, int n) {
  TILE_AT(S, m, n);
  Tree<S::COUNT, S::LEVELS> tree;
  tree.height = 0;
  NO_UNROLL for (int g = 0; g < groups; g++) {
    clear<S>(c);
    NO_UNROLL for (int i = 0; i < count; i++) {
      const Term t = terms[i];
      AlongK x = {(const float *)t.a, (i64)t.lda};
      AcrossK y = {(const float *)t.b, (i64)t.ldb};
      Bounds bounds = {(const int *)t.bounds, (int)t.k};
      extend<S, ALL>(at, c, x, y, bounds.lo(g), bounds.hi(g));
    }
    leaf(tree, c, g, groups);
  }
  each<S>(at, c, [=](int i, int j, float v) { out[i * apart + j] = v; });
}

template <class S> DEVICE void tn(float *out, i64 apart, const float *a, i64 lda, const float *b, i64 ldb, int k, int m, int n) {
  TILE_AT(S, m, n);
  each<S>(at, c, [=](int i, int j, float &v) { v = out[i * apart + j]; });
  AcrossK x = {a, lda}, y = {b, ldb};
  extend<S, ALL>(at, c, x, y, 0, k);
  each<S>(at, c, [=](int i, int j, float v) { out[i * apart + j] = v; });
}

#define GROUPED(S, size)                                                                                             \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_nt_##size(float *c, i64 apart, const float *a, i64 lda, const float *b, i64 ldb,        \
                                       const int *bounds, int groups, int m, int n, int k) {                         \
    nt<S>(c, apart, a, lda, b, ldb, Bounds{bounds, k}, groups, m, n);                                                \
  }                                                                                                                  \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_nn_##size(float *c, i64 apart, const Term *terms, int count, int groups, int m, int n) { \
    nn<S>(c, apart, terms, count, groups, m, n);                                                                     \
  }

#define CONTINUED(S, size)                                                                                           \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_tn_##size(float *c, i64 apart, const float *a, i64 lda, const float *b, i64 ldb, int m, \
                                       int n, int k) {                                                               \
    tn<S>(c, apart, a, lda, b, ldb, k, m, n);                                                                        \
  }

GROUPED(Large, 128x128)
GROUPED(Tall, 128x64)
GROUPED(Small, 32x32)
GROUPED(Single, 16x16)
CONTINUED(Large, 128x128)
CONTINUED(Tall, 128x64)
CONTINUED(Small, 32x32)
