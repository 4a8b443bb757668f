// Floating point instructions. A NaN that an operation makes is the canonical one, as on
// the device; subnormal numbers are kept unless .ftz is given.
#pragma once
#include "integers.hpp"
#include <cmath>

namespace {

template <class F> struct Format;
template <> struct Format<float> {
	using bits = u32;
	static constexpr u32 sign = 0x80000000, nan = 0x7fffffff, least = 0x00800000;
};
template <> struct Format<double> {
	using bits = u64;
	static constexpr u64 sign = 0x8000000000000000, nan = 0x7ff8000000000000, least = 0x0010000000000000;
};
template <class F> using BitsOf = typename Format<F>::bits;

template <bool Z, class F> inline F operand(F a) {
	if (!Z) return a;
	BitsOf<F> b = as<BitsOf<F>>(a), magnitude = b & ~Format<F>::sign;
	return as<F>(BitsOf<F>(magnitude < Format<F>::least ? b & Format<F>::sign : b));
}
template <bool Z, class F> inline BitsOf<F> result(F r) {
	BitsOf<F> b = as<BitsOf<F>>(operand<Z>(r));
	return r == r ? b : Format<F>::nan;
}

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float root(float a) { return __builtin_sqrtf(a); }
inline double root(double a) { return __builtin_sqrt(a); }

struct DoFAdd { template <class F> static F of(F a, F b) { return a + b; } };
struct DoFSub { template <class F> static F of(F a, F b) { return a - b; } };
struct DoFMul { template <class F> static F of(F a, F b) { return a * b; } };
struct DoFDiv { template <class F> static F of(F a, F b) { return a / b; } };
// The one that is a number counts; -0 is less than +0.
template <bool Max> struct DoFPick {
	template <class F> static F of(F a, F b) {
		using B = BitsOf<F>;
		B x = as<B>(a), y = as<B>(b), equal = Max ? x & y : x | y;
		B r = (Max ? a > b : a < b) ? x : (Max ? b > a : b < a) ? y : equal;
		r = b == b ? r : x;
		r = a == a ? r : y;
		return as<F>(r);
	}
};
struct DoSqrt { template <class F> static F of(F a) { return root(a); } };
struct DoRcp { template <class F> static F of(F a) { return F(1) / a; } };

template <class F, bool Z, class Do> struct FUnary {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const F *a = src<F>(w, i, 0);
		put<All>(w, dest<BitsOf<F>>(w, i), [&](int l) { return result<Z>(Do::of(operand<Z>(a[l]))); });
	}
};
template <class F, bool Z, class Do> struct FBinary {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const F *a = src<F>(w, i, 0), *b = src<F>(w, i, 1);
		put<All>(w, dest<BitsOf<F>>(w, i), [&](int l) { return result<Z>(Do::of(operand<Z>(a[l]), operand<Z>(b[l]))); });
	}
};
template <class F, bool Z> struct FFma {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const F *a = src<F>(w, i, 0), *b = src<F>(w, i, 1), *c = src<F>(w, i, 2);
		put<All>(w, dest<BitsOf<F>>(w, i), [&](int l) { return result<Z>(fused(operand<Z>(a[l]), operand<Z>(b[l]), operand<Z>(c[l]))); });
	}
};
// The sign is changed of a NaN too.
template <class F, bool Z, bool Abs> struct FSign {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const F *a = src<F>(w, i, 0);
		using B = BitsOf<F>;
		put<All>(w, dest<B>(w, i), [&](int l) {
			B b = as<B>(operand<Z>(a[l]));
			return Abs ? b & ~Format<F>::sign : b ^ Format<F>::sign;
		});
	}
};
// copysign d, a, b gives b the sign of a.
template <class F> struct FCopysign {
	template <bool All> static void run(Warp &w, const Ins &i) {
		using B = BitsOf<F>;
		const B *a = src<B>(w, i, 0), *b = src<B>(w, i, 1);
		put<All>(w, dest<B>(w, i), [&](int l) { return (a[l] & Format<F>::sign) | (b[l] & ~Format<F>::sign); });
	}
};

// Comparisons, of integers and floats alike: the unordered ones are true where there is a
// NaN.
template <Cmp C> struct Test {
	template <class T> static bool of(T a, T b) {
		bool un = a != a || b != b;
		switch (C) {
		case Cmp::Eq: return a == b;
		case Cmp::Ne: return a != b && !un;
		case Cmp::Lt: return a < b;
		case Cmp::Le: return a <= b;
		case Cmp::Gt: return a > b;
		case Cmp::Ge: return a >= b;
		case Cmp::Equ: return a == b || un;
		case Cmp::Neu: return a != b;
		case Cmp::Ltu: return !(a >= b);
		case Cmp::Leu: return !(a > b);
		case Cmp::Gtu: return !(a <= b);
		case Cmp::Geu: return !(a < b);
		case Cmp::Num: return !un;
		default: return un;
		}
	}
};

template <class T> inline T compared(T a, bool) { return a; }
inline float compared(float a, bool z) { return z ? operand<true>(a) : a; }
inline double compared(double a, bool z) { return z ? operand<true>(a) : a; }

template <class T, Cmp C> void compare(Warp &w, const Ins &i) {
	const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
	bool z = i.flags & Ftz;
	u32 t = z ? ask([&](int l) { return Test<C>::of(compared(a[l], true), compared(b[l], true)); }) : ask([&](int l) { return Test<C>::of(a[l], b[l]); });
	u32 other = ~t;
	if (i.sub2) {
		u32 c = pred(w, i.source(2));
		if (i.flags & NegatedC) c = ~c;
		t = i.sub2 == 1 ? t & c : i.sub2 == 2 ? t | c : t ^ c;
		other = i.sub2 == 1 ? other & c : i.sub2 == 2 ? other | c : other ^ c;
	}
	putPred(w, i.r[0], t);
	if (i.n == 2) putPred(w, i.r[1], other);
}

template <class T> bool setCompare(Ins &i) {
	static const Handler by[] = {compare<T, Cmp::Eq>, compare<T, Cmp::Ne>, compare<T, Cmp::Lt>, compare<T, Cmp::Le>, compare<T, Cmp::Gt>, compare<T, Cmp::Ge>, compare<T, Cmp::Equ>,
		compare<T, Cmp::Neu>, compare<T, Cmp::Ltu>, compare<T, Cmp::Leu>, compare<T, Cmp::Gtu>, compare<T, Cmp::Geu>, compare<T, Cmp::Num>, compare<T, Cmp::Nan>};
	return set(i, by[i.sub], by[i.sub]);
}

} // namespace
