// cvt: between integers of any widths, integers and floats, floats and integral floats.
#pragma once
#include "floats.hpp"
#include <type_traits>

namespace {

template <class F> inline F rounded(F a, Round r) {
	switch (r) {
	case Round::Near: return sizeof(F) == 4 ? F(__builtin_rintf(float(a))) : F(__builtin_rint(double(a)));
	case Round::Zero: return sizeof(F) == 4 ? F(__builtin_truncf(float(a))) : F(__builtin_trunc(double(a)));
	case Round::Down: return sizeof(F) == 4 ? F(__builtin_floorf(float(a))) : F(__builtin_floor(double(a)));
	default: return sizeof(F) == 4 ? F(__builtin_ceilf(float(a))) : F(__builtin_ceil(double(a)));
	}
}

// clamped converts a float that has been rounded: a NaN gives 0, what is out of range the
// nearest end.
template <class T, class F> inline T clamped(F a) {
	constexpr bool sign = T(-1) < T(0);
	constexpr T most = sign ? T((u64(1) << (sizeof(T) * 8 - 1)) - 1) : T(-1), least = sign ? T(-most - 1) : T(0);
	const F end = F(u64(1) << (sizeof(T) * 8 - 1)) * F(sign ? 1 : 2);
	if (a != a) return 0;
	if (a >= end) return most;
	if (a < F(least)) return least;
	return sizeof(T) == 8 && !sign && a >= F(u64(1) << 63) ? T(u64(s64(a - F(u64(1) << 63))) + (u64(1) << 63)) : T(s64(a));
}
// 32 bits are what kernels use, so they have a form that is a few vector instructions.
template <> inline s32 clamped<s32, float>(float a) {
	s32 v = s32(a < 2147483648.0f && a >= -2147483648.0f ? a : 0.0f);
	v = a >= 2147483648.0f ? 0x7fffffff : v;
	return a < -2147483648.0f ? s32(0x80000000) : v;
}

template <class T, class F> struct ToInteger {
	template <bool All, class R> static void store(Warp &w, const Ins &i) {
		const F *a = src<F>(w, i, 0);
		Round r = Round(i.sub);
		bool z = i.flags & Ftz;
		auto go = [&](auto round) { put<All>(w, dest<R>(w, i), [&](int l) { return R(clamped<T>(round(z ? operand<true>(a[l]) : a[l]))); }); };
		switch (r) {
		case Round::Near: return go([](F x) { return rounded(x, Round::Near); });
		case Round::Zero: return go([](F x) { return rounded(x, Round::Zero); });
		case Round::Down: return go([](F x) { return rounded(x, Round::Down); });
		case Round::Up: return go([](F x) { return rounded(x, Round::Up); });
		}
	}
	template <bool All> static void run(Warp &w, const Ins &i) {
		// A narrow result fills its register with its sign or zeros.
		using U16 = typename std::conditional<(T(-1) < T(0)), s16, u16>::type;
		using U32 = typename std::conditional<(T(-1) < T(0)), s32, u32>::type;
		using U64 = typename std::conditional<(T(-1) < T(0)), s64, u64>::type;
		if (i.width == 2) store<All, U16>(w, i);
		else if (i.width == 4) store<All, U32>(w, i);
		else store<All, U64>(w, i);
	}
};

// widened reads an integer of bits bits out of a register.
template <class R> inline s64 widened(R r, int bits, bool sign) {
	u64 v = u64(r) << (64 - bits);
	return sign ? s64(v) >> (64 - bits) : s64(v >> (64 - bits));
}

inline int bitsOf(ptx::Type t) { return ptx::bytes(t) * 8; }

// What a converted integer saturates to: both types' ranges are known as 64 bits.
inline s64 saturated(s64 v, ptx::Type to, ptx::Type from) {
	bool uFrom = !ptx::isSigned(from), uTo = !ptx::isSigned(to);
	int b = bitsOf(to);
	u64 most = uTo ? ~u64(0) >> (64 - b) : ~u64(0) >> (65 - b);
	if (uFrom) return u64(v) > most ? s64(most) : v;
	if (uTo) return v < 0 ? 0 : u64(v) > most ? s64(most) : v;
	s64 least = -s64(most) - 1;
	return v < least ? least : v > s64(most) ? s64(most) : v;
}

template <class D, class S> struct Integers {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const S *a = src<S>(w, i, 0);
		int from = bitsOf(i.type2), to = bitsOf(i.type);
		bool sFrom = ptx::isSigned(i.type2), sTo = ptx::isSigned(i.type);
		if (i.flags & Sat) put<All>(w, dest<D>(w, i), [&](int l) { return D(saturated(widened(a[l], from, sFrom), i.type, i.type2)); });
		else if (from == int(sizeof(S)) * 8 && to == int(sizeof(D)) * 8)
			sFrom ? put<All>(w, dest<D>(w, i), [&](int l) { return D(typename Signed<S>::type(a[l])); }) : put<All>(w, dest<D>(w, i), [&](int l) { return D(a[l]); });
		else put<All>(w, dest<D>(w, i), [&](int l) { return D(widened(u64(widened(a[l], from, sFrom)), to, sTo)); });
	}
	template <class T> struct Signed { using type = typename std::make_signed<T>::type; };
};

template <class F, class S> struct ToFloat {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const S *a = src<S>(w, i, 0);
		int from = bitsOf(i.type2);
		bool sign = ptx::isSigned(i.type2);
		using Si = typename std::make_signed<S>::type;
		if (from == int(sizeof(S)) * 8) {
			if (sign) put<All>(w, dest<F>(w, i), [&](int l) { return F(Si(a[l])); });
			else put<All>(w, dest<F>(w, i), [&](int l) { return F(a[l]); });
		} else {
			put<All>(w, dest<F>(w, i), [&](int l) { return F(widened(a[l], from, sign)); });
		}
		if (i.flags & Sat) put<All>(w, dest<F>(w, i), [&](int l) { F v = dest<F>(w, i)[l]; return v > F(1) ? F(1) : v > F(0) ? v : F(0); });
	}
};

template <class D, class S> struct Floats {
	template <bool All> static void run(Warp &w, const Ins &i) {
		const S *a = src<S>(w, i, 0);
		bool z = i.flags & Ftz, sat = i.flags & Sat, integral = i.flags & Integral;
		Round r = Round(i.sub);
		put<All>(w, dest<BitsOf<D>>(w, i), [&](int l) {
			S x = z ? operand<true>(a[l]) : a[l];
			D v = D(integral ? rounded(x, r) : x);
			if (sat) v = v > D(1) ? D(1) : v > D(0) ? v : D(0);
			return z ? result<true>(v) : result<false>(v);
		});
	}
};

template <class X> inline bool setBoth(Ins &i) { return set(i, X::template run<true>, X::template run<false>); }

template <class F> bool setFromFloat(Ins &i) {
	using ptx::Type;
	switch (i.type) {
	case Type::U8: return setBoth<ToInteger<u8, F>>(i);
	case Type::S8: return setBoth<ToInteger<s8, F>>(i);
	case Type::U16: return setBoth<ToInteger<u16, F>>(i);
	case Type::S16: return setBoth<ToInteger<s16, F>>(i);
	case Type::U32: return setBoth<ToInteger<u32, F>>(i);
	case Type::S32: return setBoth<ToInteger<s32, F>>(i);
	case Type::U64: return setBoth<ToInteger<u64, F>>(i);
	case Type::S64: return setBoth<ToInteger<s64, F>>(i);
	case Type::F32: return setBoth<Floats<float, F>>(i);
	default: return setBoth<Floats<double, F>>(i);
	}
}
template <class S> bool setFromInteger(Ins &i) {
	if (i.type == ptx::Type::F32) return setBoth<ToFloat<float, S>>(i);
	if (i.type == ptx::Type::F64) return setBoth<ToFloat<double, S>>(i);
	if (i.width == 2) return setBoth<Integers<u16, S>>(i);
	return i.width == 4 ? setBoth<Integers<u32, S>>(i) : setBoth<Integers<u64, S>>(i);
}
inline bool setConvert(Ins &i) {
	if (i.type2 == ptx::Type::F32) return setFromFloat<float>(i);
	if (i.type2 == ptx::Type::F64) return setFromFloat<double>(i);
	if (i.sub2 == 2) return setFromInteger<u16>(i);
	return i.sub2 == 4 ? setFromInteger<u32>(i) : setFromInteger<u64>(i);
}

} // namespace
