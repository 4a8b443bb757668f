// Loops over the lanes of a warp. The files that include this are compiled once for each
// instruction set, and the compiler makes vector instructions of the loops: all that is
// here has internal linkage, so that no function of one set is taken for another's.
#pragma once
#include "exec.hpp"
#include <cstring>

namespace {

// bit has the mask of each lane, which makes of a condition a mask by an OR.
alignas(64) constexpr u32 bit[Lanes] = {
	1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
	1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

template <class T> inline T *reg(Warp &w, u32 at) { return static_cast<T *>(__builtin_assume_aligned(w.registers + at, 64)); }
template <class T> inline T *dest(Warp &w, const Ins &i) { return reg<T>(w, i.r[0]); }
template <class T> inline const T *src(Warp &w, const Ins &i, int k) { return reg<T>(w, i.r[i.writes + k]); }
inline u32 &pred(Warp &w, u32 at) { return *reinterpret_cast<u32 *>(w.registers + at); }

// put writes a register. Where all lanes that live execute, the others' values do not
// matter and are written too.
template <bool All, class D, class F> inline __attribute__((always_inline)) void put(Warp &w, D *__restrict d, F f) {
	if (All) {
#pragma GCC ivdep
		for (int l = 0; l < Lanes; l++) d[l] = D(f(l));
	} else {
		u32 m = w.mask;
#pragma GCC ivdep
		for (int l = 0; l < Lanes; l++) {
			D v = D(f(l));
			d[l] = m & bit[l] ? v : d[l];
		}
	}
}

// ask gives the mask of the lanes for which f is true.
template <class F> inline __attribute__((always_inline)) u32 ask(F f) {
	u32 m = 0;
	for (int l = 0; l < Lanes; l++) m |= f(l) ? bit[l] : 0;
	return m;
}

inline void putPred(Warp &w, u32 at, u32 bits) { pred(w, at) = (pred(w, at) & ~w.mask) | (bits & w.mask); }

// each calls f for the lanes of a mask.
template <class F> inline __attribute__((always_inline)) void each(u32 mask, F f) {
	for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

template <class To, class From> inline To as(From f) {
	static_assert(sizeof(To) == sizeof(From), "the same bits");
	To t;
	memcpy(&t, &f, sizeof t);
	return t;
}

// Handlers of an instruction, for all lanes and for some.
inline bool set(Ins &i, Handler all, Handler some) {
	i.all = all;
	i.some = some;
	return true;
}

} // namespace
