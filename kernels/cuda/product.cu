// The matrix products, each for tiles of several sizes. A launch is of several products
// that do not depend on each other, with a block to each tile of each of them.
#include "tile.h"

// Product is one of a launch, as the host writes it.
struct Product {
  u64 c, apart;
  u64 a, lda, b, ldb;  // of a sum of terms, those of the term at hand
  u64 list;            // bounds of groups, or terms; 0 for one group
  int groups, terms, m, n, k;
  int first;  // its first block
};

// Term is one pair of operands; bounds is an address, or 0 for one group.
struct Term {
  u64 a, lda, b, ldb, bounds, k;
};

// Bounds cut [0, K) into groups; without bounds it is one group.
struct Bounds {
  const int *at;
  int k;
  DEVICE_METHOD int lo(int g) const { return at ? at[g] : 0; }
  DEVICE_METHOD int hi(int g) const { return at ? at[g + 1] : k; }
};

// word and number read shared memory anew, so that no register keeps what is there.
DEVICE u64 word(const u64 &from) {
  u64 v;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(shared_address(&from)) : "memory");
  return v;
}
DEVICE int number(const int &from) {
  int v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(&from)) : "memory");
  return v;
}

// take copies the product that this block has a tile of to shared memory.
DEVICE void take(Product &job, const Product *list, int count) {
  int i = 0;
  NO_UNROLL while (i + 1 < count && (int)block() >= list[i + 1].first) i++;
  if (thread() < (int)(sizeof(Product) / sizeof(u64))) ((u64 *)&job)[thread()] = ((const u64 *)&list[i])[thread()];
  barrier();
}

// JOB_AT is the product of this block, and its tile of it.
#define JOB_AT(S)                  \
  SHARED static Product job;       \
  take(job, list, count);          \
  TILE_AT(S, (int)block() - number(job.first), number(job.m), number(job.n))

template <class S> DEVICE void store(const Product &job, Chains<S> &at, float (&c)[S::COUNT]) {
  at.rows = number(job.m);
  at.columns = number(job.n);
  float *out = (float *)word(job.c);
  i64 apart = (i64)word(job.apart);
  each<S>(at, c, [=](int i, int j, float v) { out[i * apart + j] = v; });
}

template <class S> DEVICE void nt(const Product *list, int count) {
  JOB_AT(S);
  Later<AlongK> x = {shared_address(&job.a), shared_address(&job.m)}, y = {shared_address(&job.b), shared_address(&job.n)};
  Tree<S::COUNT, S::LEVELS> tree;
  tree.height = 0;
  NO_UNROLL for (int g = 0, groups = number(job.groups); g < groups; g++) {
    Bounds bounds = {(const int *)word(job.list), number(job.k)};
    clear<S>(c);
    extend<S, ALL>(at, c, x, y, bounds.lo(g), bounds.hi(g));
    leaf(tree, c, g, groups);
  }
  store<S>(job, at, c);
}

template <class S> DEVICE void nn(const Product *list, int count) {
  JOB_AT(S);
  Later<AlongK> x = {shared_address(&job.a), shared_address(&job.m)};
  Later<AcrossK> y = {shared_address(&job.b), shared_address(&job.n)};
  Tree<S::COUNT, S::LEVELS> tree;
  tree.height = 0;
  NO_UNROLL for (int g = 0, groups = number(job.groups); g < groups; g++) {
    clear<S>(c);
    NO_UNROLL for (int i = 0; i < number(job.terms); i++) {
      const Term *t = (const Term *)word(job.list) + i;
      Bounds bounds = {(const int *)t->bounds, (int)t->k};
      int lo = bounds.lo(g), hi = bounds.hi(g);
      // The barriers of the term before have let nobody be here who still reads its operands.
      if (thread() < 4) (&job.a)[thread()] = (&t->a)[thread()];
      barrier();
      extend<S, ALL>(at, c, x, y, lo, hi);
    }
    leaf(tree, c, g, groups);
  }
  store<S>(job, at, c);
}

template <class S> DEVICE void tn(const Product *list, int count) {
  JOB_AT(S);
  float *out = (float *)word(job.c);
  i64 apart = (i64)word(job.apart);
  each<S>(at, c, [=](int i, int j, float &v) { v = out[i * apart + j]; });
  Later<AcrossK> x = {shared_address(&job.a), shared_address(&job.m)}, y = {shared_address(&job.b), shared_address(&job.n)};
  extend<S, ALL>(at, c, x, y, 0, number(job.k));
  store<S>(job, at, c);
}

#define GROUPED(S, size)                                                                                            \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_nt_##size(const Product *list, int count) { nt<S>(list, count); }       \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_nn_##size(const Product *list, int count) { nn<S>(list, count); }

#define CONTINUED(S, size) \
  KERNEL_OF(S::THREADS, S::BLOCKS) product_tn_##size(const Product *list, int count) { tn<S>(list, count); }

GROUPED(Large, 128x128)
GROUPED(Tall, 128x64)
GROUPED(Small, 32x32)
GROUPED(Single, 16x16)
CONTINUED(Large, 128x128)
CONTINUED(Tall, 128x64)
CONTINUED(Small, 32x32)
