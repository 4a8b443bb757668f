// Integer and bitwise instructions.
#pragma once
#include "lanes.hpp"

namespace {

template <class T> struct Unsigned;
template <> struct Unsigned<u16> { using type = u16; using twice = u32; };
template <> struct Unsigned<s16> { using type = u16; using twice = s32; };
template <> struct Unsigned<u32> { using type = u32; using twice = u64; };
template <> struct Unsigned<s32> { using type = u32; using twice = s64; };
template <> struct Unsigned<u64> { using type = u64; using twice = unsigned __int128; };
template <> struct Unsigned<s64> { using type = u64; using twice = __int128; };
template <class T> using U = typename Unsigned<T>::type;
template <class T> using Twice = typename Unsigned<T>::twice;
template <class T> constexpr int Bits = int(sizeof(T) * 8);

// The operations by element. Unsigned types carry what may overflow.
struct DoAdd { template <class T> static T of(T a, T b) { return T(U<T>(a) + U<T>(b)); } };
struct DoSub { template <class T> static T of(T a, T b) { return T(U<T>(a) - U<T>(b)); } };
struct DoMul { template <class T> static T of(T a, T b) { return T(u64(U<T>(a)) * u64(U<T>(b))); } };
struct DoMul32 { template <class T> static T of(T a, T b) { return T(u32(U<T>(a)) * u32(U<T>(b))); } };
struct DoMulHi { template <class T> static T of(T a, T b) { return T((Twice<T>(a) * Twice<T>(b)) >> Bits<T>); } };
// What a division by 0 gives is not defined; the least number by -1 overflows to itself.
struct DoDiv { template <class T> static T of(T a, T b) { return b == 0 ? T(-1) : T(-1) < T(0) && b == T(-1) ? T(-U<T>(a)) : T(a / b); } };
struct DoRem { template <class T> static T of(T a, T b) { return b == 0 ? a : T(-1) < T(0) && b == T(-1) ? T(0) : T(a % b); } };
struct DoMin { template <class T> static T of(T a, T b) { return a < b ? a : b; } };
struct DoMax { template <class T> static T of(T a, T b) { return a > b ? a : b; } };
struct DoAnd { template <class T> static T of(T a, T b) { return a & b; } };
struct DoOr { template <class T> static T of(T a, T b) { return a | b; } };
struct DoXor { template <class T> static T of(T a, T b) { return a ^ b; } };
struct DoNeg { template <class T> static T of(T a) { return T(-U<T>(a)); } };
struct DoAbs { template <class T> static T of(T a) { return a < 0 ? T(-U<T>(a)) : a; } };
struct DoNot { template <class T> static T of(T a) { return ~a; } };
struct DoCnot { template <class T> static T of(T a) { return a == 0; } };
struct DoMove { template <class T> static T of(T a) { return a; } };
struct DoBrev {
	template <class T> static T of(T a) {
		T r = 0;
		for (int k = 0; k < Bits<T>; k++) r = T(r << 1) | T(a >> k & 1);
		return r;
	}
};

// element writes a result. 16 bits are rare: their loops are left as they are, which
// spares the compiler, whose masked minimum of 16 bits (GCC 12) does not compile.
template <bool All, class T, class F> inline __attribute__((always_inline)) void element(Warp &w, T *d, F f) {
	if constexpr (sizeof(T) == 2) each(w.mask, [&](int l) { d[l] = T(f(l)); });
	else put<All>(w, d, f);
}

template <class T, class F> struct Unary {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0);
		element<All>(w, dest<T>(w, i), [&](int l) { return F::of(a[l]); });
	}
};
template <class T, class F> struct Binary {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		element<All>(w, dest<T>(w, i), [&](int l) { return F::of(a[l], b[l]); });
	}
};
template <class T, class F> struct MulAdd {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1), *c = src<T>(w, i, 2);
		element<All>(w, dest<T>(w, i), [&](int l) { return DoAdd::of(F::of(a[l], b[l]), c[l]); });
	}
};
template <class T> struct Wide {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		element<All>(w, dest<Twice<T>>(w, i), [&](int l) { return Twice<T>(a[l]) * Twice<T>(b[l]); });
	}
};
template <class T> struct WideAdd {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		const Twice<T> *c = src<Twice<T>>(w, i, 2);
		element<All>(w, dest<Twice<T>>(w, i), [&](int l) { return DoAdd::of(Twice<T>(Twice<T>(a[l]) * Twice<T>(b[l])), c[l]); });
	}
};

// Amounts are unsigned and clamp to the width.
template <class T> struct Left {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0);
		const u32 *b = src<u32>(w, i, 1);
		element<All>(w, dest<T>(w, i), [&](int l) { return b[l] >= u32(Bits<T>) ? T(0) : T(a[l] << (b[l] & (Bits<T> - 1))); });
	}
};
template <class T> struct Right {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0);
		const u32 *b = src<u32>(w, i, 1);
		if (T(-1) < T(0)) element<All>(w, dest<T>(w, i), [&](int l) { return T(a[l] >> (b[l] >= u32(Bits<T>) ? Bits<T> - 1 : int(b[l]))); });
		else element<All>(w, dest<T>(w, i), [&](int l) { return b[l] >= u32(Bits<T>) ? T(0) : T(a[l] >> (b[l] & (Bits<T> - 1))); });
	}
};
template <bool ToLeft> struct Funnel {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const u32 *a = src<u32>(w, i, 0), *b = src<u32>(w, i, 1), *c = src<u32>(w, i, 2);
		bool wrap = i.flags & Wrap;
		element<All>(w, dest<u32>(w, i), [&](int l) {
			u32 n = wrap ? c[l] & 31 : c[l] > 32 ? 32 : c[l];
			u64 v = u64(b[l]) << 32 | a[l];
			return ToLeft ? u32(v << n >> 32) : u32(v >> n);
		});
	}
};

// Sub subtracts, In takes the carry of the instruction before, Out leaves one. What
// subtraction carries is a borrow.
template <class T, bool Sub, bool In, bool Out> struct Carry {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		T *d = dest<T>(w, i);
		u32 carry = w.carry;
		each(w.mask, [&](int l) {
			T x = a[l], y = b[l], c = In ? T(carry >> l & 1) : T(0);
			T r = Sub ? T(x - y - c) : T(x + y + c);
			bool out = Sub ? (x < y || (x == y && c)) : (r < x || (r == x && c && y == T(-1)));
			if (Out) carry = (carry & ~bit[l]) | (out ? bit[l] : 0);
			d[l] = r;
		});
		w.carry = carry;
	}
};

template <class T> struct Extract {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0);
		const u32 *b = src<u32>(w, i, 1), *c = src<u32>(w, i, 2);
		element<All>(w, dest<T>(w, i), [&](int l) {
			u32 at = b[l] & 255, n = c[l] & 255, top = u32(Bits<T>) - 1;
			u32 last = at + n - 1 < top ? at + n - 1 : top;
			bool sign = T(-1) < T(0) && n && (U<T>(a[l]) >> last & 1);
			U<T> v = at > top ? U<T>(0) : U<T>(U<T>(a[l]) >> (at & top));
			u32 have = at > top ? 0 : n < top + 1 - at ? n : top + 1 - at;
			U<T> low = have > top ? ~U<T>(0) : U<T>((U<T>(1) << (have & top)) - 1);
			return T((v & low) | (sign ? U<T>(~low) : U<T>(0)));
		});
	}
};
template <class T> struct Insert {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		const u32 *c = src<u32>(w, i, 2), *e = src<u32>(w, i, 3);
		element<All>(w, dest<T>(w, i), [&](int l) {
			u32 at = c[l] & 255, n = e[l] & 255, top = u32(Bits<T>) - 1;
			T low = n > top ? ~T(0) : T((T(1) << (n & top)) - 1);
			T m = at > top ? T(0) : T(low << (at & top));
			return T((b[l] & ~m) | (at > top ? T(0) : T(a[l] << (at & top)) & m));
		});
	}
};

template <class T> inline u32 leading(T a) { return a == 0 ? u32(Bits<T>) : u32(sizeof(T) == 8 ? __builtin_clzll(u64(a)) : __builtin_clz(u32(a))); }
struct DoClz { template <class T> static u32 of(T a, bool) { return leading(U<T>(a)); } };
struct DoPopc { template <class T> static u32 of(T a, bool) { return u32(__builtin_popcountll(u64(U<T>(a)))); } };
struct DoBfind {
	template <class T> static u32 of(T a, bool shift) {
		U<T> v = U<T>(a < 0 ? ~a : a);
		u32 n = leading(v);
		return n == u32(Bits<T>) ? ~u32(0) : shift ? n : u32(Bits<T>) - 1 - n;
	}
};
template <class T, class F> struct Count {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0);
		bool flag = i.flags & Wrap;
		element<All>(w, dest<u32>(w, i), [&](int l) { return F::of(a[l], flag); });
	}
};

struct Logic3 {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const u32 *a = src<u32>(w, i, 0), *b = src<u32>(w, i, 1), *c = src<u32>(w, i, 2);
		u32 t = u32(i.imm);
		auto m = [&](int k) { return t >> k & 1 ? ~u32(0) : u32(0); };
		u32 m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3), m4 = m(4), m5 = m(5), m6 = m(6), m7 = m(7);
		put<All>(w, dest<u32>(w, i), [&](int l) {
			u32 x = a[l], y = b[l], z = c[l];
			return (~x & ~y & ~z & m0) | (~x & ~y & z & m1) | (~x & y & ~z & m2) | (~x & y & z & m3) | (x & ~y & ~z & m4) | (x & ~y & z & m5) | (x & y & ~z & m6) | (x & y & z & m7);
		});
	}
};

// selector is which byte of the two operands goes to byte k; its bit 3 repeats the sign.
inline u32 selector(u32 mode, u32 c, u32 k) {
	u32 s = c & 3;
	switch (mode) {
	case 1: return s + k;
	case 2: return (s - k) & 7;
	case 3: return s;
	case 4: return s > k ? s : k;
	case 5: return s < k ? s : k;
	case 6: return (s & 1) * 2 + (k & 1);
	default: return c >> 4 * k & 15;
	}
}
struct Permute {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const u32 *a = src<u32>(w, i, 0), *b = src<u32>(w, i, 1), *c = src<u32>(w, i, 2);
		put<All>(w, dest<u32>(w, i), [&](int l) {
			u64 v = u64(b[l]) << 32 | a[l];
			u32 r = 0;
			for (u32 k = 0; k < 4; k++) {
				u32 s = selector(i.sub, c[l], k), x = u32(v >> 8 * (s & 7)) & 255;
				r |= (s & 8 ? (x & 128 ? 255u : 0u) : x) << 8 * k;
			}
			return r;
		});
	}
};

template <class T> struct Select {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const T *a = src<T>(w, i, 0), *b = src<T>(w, i, 1);
		u32 p = pred(w, i.source(2));
		element<All>(w, dest<T>(w, i), [&](int l) { return p & bit[l] ? a[l] : b[l]; });
	}
};

template <class Whole, class Part, int N> struct Parts {
	template <bool All> static void pack(Warp &w, const Ins &i) {
		const Part *p[N];
		for (int k = 0; k < N; k++) p[k] = src<Part>(w, i, k);
		put<All>(w, dest<Whole>(w, i), [&](int l) {
			Whole v = 0;
			for (int k = 0; k < N; k++) v |= Whole(p[k][l]) << (Bits<Part> * k);
			return v;
		});
	}
	// The source may be one of the parts' registers only if it has their width: never.
	template <bool All> static void unpack(Warp &w, const Ins &i) {
		const Whole *a = src<Whole>(w, i, 0);
		for (int k = 0; k < N; k++) put<All>(w, reg<Part>(w, i.r[k]), [&](int l) { return a[l] >> (Bits<Part> * k); });
	}
};

template <class F> void predicates(Warp &w, const Ins &i) {
	u32 a = pred(w, i.source(0)), b = i.reads > 1 ? pred(w, i.source(1)) : 0;
	putPred(w, i.r[0], F::of(a, b));
}
struct PredMove { static u32 of(u32 a, u32) { return a; } };
struct PredNot { static u32 of(u32 a, u32) { return ~a; } };

// Generic addresses of shared and local memory are windows.
template <bool Add, bool OfShared> struct Window {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const u64 *a = src<u64>(w, i, 0);
		u64 by = OfShared ? SharedWindow : LocalWindow;
		put<All>(w, dest<u64>(w, i), [&](int l) { return Add ? a[l] + by : a[l] - by; });
	}
};
inline void isSpace(Warp &w, const Ins &i) {
	const u64 *a = src<u64>(w, i, 0);
	u32 shared = ask([&](int l) { return a[l] - SharedWindow < WindowSize; }), local = ask([&](int l) { return a[l] - LocalWindow < WindowSize; });
	putPred(w, i.r[0], i.space == ptx::Space::Shared ? shared : i.space == ptx::Space::Local ? local : ~(shared | local));
}

} // namespace
