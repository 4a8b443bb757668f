// Attention and its gradient. Grids have a tile in x and a head of a sequence in y.
// Row t of p has the keys 0..t; what lies beyond is neither read nor written.
#include "tile.h"

enum { WARPS = 8 };

// Heads is what kernels.Heads says but for the scale.
struct Heads {
  int seqs, t, heads, keys, dim, groups;
};

// A kernel is given its numbers one by one: structures would be read by address.
#define HEADS int seqs, int t, int heads, int key_heads, int dim, int groups
#define GIVEN Heads{seqs, t, heads, key_heads, dim, groups}

// Where head h of sequence s begins, in a matrix of n heads to a row.
DEVICE i64 head_at(const Heads &d, int s, i64 h, int n) { return ((i64)s * d.t * n + h) * d.dim; }
DEVICE i64 matrix_at(const Heads &d, int s, i64 h) { return ((i64)s * d.heads + h) * d.t * d.t; }

// EACH_HEAD runs its body for the sequences s and heads h of n that are this block's.
#define EACH_HEAD(s, h, d, n)                                                             \
  NO_UNROLL for (i64 _b = block_y(), _n = (i64)(d).seqs * (n); _b < _n; _b += blocks_y()) \
    if (int s = (int)(_b / (n)), h = (int)(_b % (n)); true)

// s = chain(a.b) of tokens a of a query head and b of its key head; scaled, if so.
template <class S, bool SCALED> DEVICE void scores(float *p, const float *a, const float *b, Heads d, float scale) {
  EACH_HEAD(s, h, d, d.heads) {
    TILE_AT(S, block(), d.t, d.t);
    if (at.n0 > at.m0 + S::M - 1) return;  // all of it is beyond t
    AlongK x = {a + head_at(d, s, h, d.heads), (i64)d.heads * d.dim};
    AlongK y = {b + head_at(d, s, h / (d.heads / d.keys), d.keys), (i64)d.keys * d.dim};
    extend<S, ALL>(at, c, x, y, 0, d.dim);
    float *out = p + matrix_at(d, s, h);
    each<S>(at, c, [=](int i, int j, float v) {
      if (j <= i) out[(i64)i * d.t + j] = SCALED ? mul(v, scale) : v;
    });
    barrier();  // before the next head's stages
  }
}

// o = chain over j of (p_j, v_j), for v of the key head.
template <class S> DEVICE void values(float *o, const float *p, const float *v, Heads d) {
  EACH_HEAD(s, h, d, d.heads) {
    TILE_AT(S, block(), d.t, d.dim);
    i64 apart = (i64)d.heads * d.dim;
    UpToRow x = {{p + matrix_at(d, s, h), d.t}};
    AcrossK y = {v + head_at(d, s, h / (d.heads / d.keys), d.keys), (i64)d.keys * d.dim};
    extend<S, UP_TO_ROW>(at, c, x, y, 0, least(d.t, at.m0 + S::M));
    float *out = o + head_at(d, s, h, d.heads);
    each<S>(at, c, [=](int i, int j, float e) { out[i * apart + j] = e; });
    barrier();
  }
}

// dk_j = chain, query heads of the group and then t ascending, of (ds_j, q_t); then
// the tree over the groups. dv is the same of p and do.
template <class S> DEVICE void keys(float *dk, const float *ds, const float *q, Heads d) {
  EACH_HEAD(s, h, d, d.keys) {
    TILE_AT(S, block(), d.t, d.dim);
    int share = d.heads / d.keys, size = share / d.groups;
    Tree<S::COUNT, S::LEVELS> tree;
    tree.height = 0;
    NO_UNROLL for (int g = 0; g < d.groups; g++) {
      clear<S>(c);
      NO_UNROLL for (int i = 0; i < size; i++) {
        i64 query = (i64)h * share + (i64)g * size + i;
        FromRow x = {{ds + matrix_at(d, s, query), d.t}};
        AcrossK y = {q + head_at(d, s, query, d.heads), (i64)d.heads * d.dim};
        extend<S, FROM_ROW>(at, c, x, y, at.m0, d.t);
      }
      leaf(tree, c, g, d.groups);
    }
    i64 apart = (i64)d.keys * d.dim;
    float *out = dk + head_at(d, s, h, d.keys);
    each<S>(at, c, [=](int i, int j, float e) { out[i * apart + j] = e; });
    barrier();
  }
}

KERNEL_OF(Small::THREADS, Small::BLOCKS) attention_scores(float *p, const float *q, const float *k, HEADS, float scale) {
  scores<Small, true>(p, q, k, GIVEN, scale);
}

KERNEL_OF(Small::THREADS, Small::BLOCKS) attention_dp(float *dp, const float *o, const float *v, HEADS) { scores<Small, false>(dp, o, v, GIVEN, 1.0f); }

KERNEL_OF(Small::THREADS, Small::BLOCKS) attention_values(float *o, const float *p, const float *v, HEADS) { values<Small>(o, p, v, GIVEN); }

KERNEL_OF(Small::THREADS, Small::BLOCKS) attention_keys_32x32(float *dk, const float *ds, const float *q, HEADS) { keys<Small>(dk, ds, q, GIVEN); }

KERNEL_OF(Single::THREADS, Single::BLOCKS) attention_keys_16x16(float *dk, const float *ds, const float *q, HEADS) { keys<Single>(dk, ds, q, GIVEN); }

// The scores of a query become probabilities: a warp has a row.
KERNEL(32 * WARPS) attention_softmax(float *p, HEADS) {
  const Heads d = GIVEN;
  i64 i = (i64)block() * WARPS + warp();
  if (i >= (i64)d.seqs * d.heads * d.t) return;
  float *row = p + i * d.t, m = -infinity();
  int n = (int)(i % d.t) + 1;
  for (int j = lane(); j < n; j += 32)
    if (row[j] > m) m = row[j];
  UNROLL for (int e = 16; e >= 1; e >>= 1) {
    float o = shuffle_xor(m, e);
    if (o > m) m = o;
  }
  float s = 0.0f;
  for (int j = lane(); j < n; j += 32) {
    float e = exponential(sub(row[j], m));
    row[j] = e;
    s = add(s, e);
  }
  s = fold(s);
  for (int j = lane(); j < n; j += 32) row[j] = quotient(row[j], s);
}

// ds, in the place of dp.
KERNEL(32 * WARPS) attention_ds(float *dp, const float *p, HEADS, float scale) {
  const Heads d = GIVEN;
  i64 i = (i64)block() * WARPS + warp();
  if (i >= (i64)d.seqs * d.heads * d.t) return;
  float *row = dp + i * d.t, s = 0.0f;
  const float *of = p + i * d.t;
  int n = (int)(i % d.t) + 1;
  for (int j = lane(); j < n; j += 32) s = fused(of[j], row[j], s);
  float mean = fold(s);
  for (int j = lane(); j < n; j += 32) row[j] = mul(mul(of[j], sub(row[j], mean)), scale);
}
