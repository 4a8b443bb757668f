// Reductions over tensors, and sums of integers over the elements of one.
#include "gpu.h"
#include "tree.h"

// from and to hold addresses; 0 is an absent source. Any destination may be any
// source: a thread reads element i of all before it writes one.
KERNEL(VECTOR) reduce_sum(float *const *to, int tos, const float *const *from, int froms, i64 n) {
  EACH_ELEMENT(i, n) {
    float below[DEEP], s = 0.0f;
    u32 absent = 0;  // a bit for each level of the stack
    int height = 0;
    NO_UNROLL for (int j = 0; j < froms; j++) {
      const float *x = from[j];
      bool none = !x, last = j == froms - 1;
      if (x) s = x[i];
      NO_UNROLL for (int c = j + 1; height > 0 && (last || (c & 1) == 0); c >>= 1) {
        height--;
        if (absent >> height & 1) continue;
        s = none ? below[height] : add(below[height], s);
        none = false;
      }
      if (none) s = -0.0f;
      below[height] = s;
      absent = (absent & ~(1u << height)) | (u32)none << height;
      height++;
    }
    NO_UNROLL for (int j = 0; j < tos; j++) to[j][i] = s;
  }
}

KERNEL(VECTOR) reduce_max(float *const *to, int tos, const float *const *from, int froms, i64 n) {
  EACH_ELEMENT(i, n) {
    float m = -infinity();
    NO_UNROLL for (int j = 0; j < froms; j++)
      if (const float *x = from[j])
        if (x[i] > m) m = x[i];
    NO_UNROLL for (int j = 0; j < tos; j++) to[j][i] = m;
  }
}
