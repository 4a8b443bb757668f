// Atomic operations, asynchronous copies and parameters.
#pragma once
#include "meet.hpp"

namespace {

template <class T> inline T changed(AtomOp op, T old, T b, T c) {
	using S = typename std::make_signed<T>::type;
	(void)sizeof(S);
	switch (op) {
	case AtomOp::Add: return T(U<T>(old) + U<T>(b));
	case AtomOp::Min: return old < b ? old : b;
	case AtomOp::Max: return old > b ? old : b;
	case AtomOp::Exch: return b;
	case AtomOp::Cas: return old == b ? c : old;
	case AtomOp::And: return old & b;
	case AtomOp::Or: return old | b;
	case AtomOp::Xor: return old ^ b;
	case AtomOp::Inc: return old >= b ? T(0) : T(old + 1);
	default: return old == 0 || old > b ? b : T(old - 1);
	}
}

template <Place P, class T, bool Check> void atomic(Warp &w, const Ins &i) {
	Offsets o;
	if (!w.mask) return;
	if (!find<P, int(sizeof(T))>(w, i, 0, o)) misplaced<P, int(sizeof(T))>(w, i, o, true);
	if (Check) judgeEach<P, int(sizeof(T))>(w, i, o, Access::Atomic);
	const T *b = src<T>(w, i, 1), *c = i.reads > 2 ? src<T>(w, i, 2) : b;
	each(w.mask, [&](int l) {
		T *p = reinterpret_cast<T *>(bytesOf<P>(w) + o.of[l]);
		T old = __atomic_load_n(p, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(p, &old, changed(AtomOp(i.sub), old, b[l], c[l]), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
		if (i.writes) dest<T>(w, i)[l] = old;
	});
}

inline void noAtomic(Warp &w, const Ins &i) { fault(w, i, __builtin_ctz(w.mask), Fault::OutOfBounds, "atomic operation on local memory"); }

template <class T, bool C> bool setAtomicOf(Ins &i) {
	constexpr Handler g = atomic<InGlobal, T, C>, s = atomic<InShared, T, C>;
	Handler h = i.space == ptx::Space::Global ? g : i.space == ptx::Space::Shared ? s : generic<g, s, noAtomic>;
	return set(i, h, h);
}
template <bool C> bool setAtomic(Ins &i) {
	bool sign = ptx::isSigned(i.type);
	if (ptx::bytes(i.type) == 4) return sign ? setAtomicOf<s32, C>(i) : setAtomicOf<u32, C>(i);
	return sign ? setAtomicOf<s64, C>(i) : setAtomicOf<u64, C>(i);
}

// asyncCopy starts a copy for each lane. What it reads is read now, and arrives when the
// lane waits for it: a kernel that does not wait sees what was there before.
template <bool Check> void asyncCopy(Warp &w, const Ins &i) {
	const u64 *from = src<u64>(w, i, 1);
	u64 more = u64(i.imm >> 16), base = w.run->arena.base;
	u32 to = u32(s32(s16(i.imm & 0xffff)));
	each(w.mask, [&](int l) {
		u32 target = (i.sub2 == 4 ? src<u32>(w, i, 0)[l] : u32(src<u64>(w, i, 0)[l])) + to;
		u64 at = from[l] + more;
		u32 size = i.n, valid = i.reads > 2 ? src<u32>(w, i, 2)[l] : size;
		if (valid > size) fault(w, i, l, Fault::OutOfBounds, "copies %u bytes into %u", valid, size);
		if (valid && at - base > w.run->arena.size - size) wild(w, i, l, at, size, false);
		if (at % size || target % size) fault(w, i, l, Fault::Misaligned, "copies %u bytes from 0x%llx to shared 0x%x", size, (unsigned long long)at, target);
		if (target > w.run->sharedBytes - size) fault(w, i, l, Fault::OutOfBounds, "copies %u bytes to shared 0x%x, shared memory of the block has %u", size, target, w.run->sharedBytes);
		startCopy(w, i, l, at - base, target, size, valid);
	});
}
inline void commitCopies(Warp &w, const Ins &) { w.copyGroup++; }
inline void waitCopies(Warp &w, const Ins &i) { landCopies(w, i.imm < 0 ? 0 : u32(i.imm), i.imm < 0); }

// parameter reads the constant bytes of a launch.
template <class T, class R> void parameter(Warp &w, const Ins &i) {
	for (int k = 0; k < i.n; k++) {
		T v;
		R *d = reg<R>(w, i.r[k]);
		u64 at = u64(i.imm) + u64(k) * sizeof v, end = w.run->paramBytes;
		if (!i.reads) {
			if (at > end || at + sizeof v > end) fault(w, i, __builtin_ctz(w.mask), Fault::OutOfBounds, "reads %d bytes at %llu of %llu bytes of parameters", int(sizeof v), (unsigned long long)at, (unsigned long long)end);
			memcpy(&v, w.run->params + at, sizeof v);
			put<false>(w, d, [&](int) { return R(v); });
			continue;
		}
		each(w.mask, [&](int l) {
			u64 a = at + (i.sub2 == 4 ? src<u32>(w, i, 0)[l] : src<u64>(w, i, 0)[l]);
			if (a > end || a + sizeof v > end) fault(w, i, l, Fault::OutOfBounds, "reads %d bytes at %llu of %llu bytes of parameters", int(sizeof v), (unsigned long long)a, (unsigned long long)end);
			if (a % sizeof v) fault(w, i, l, Fault::Misaligned, "reads %d bytes of parameters at %llu", int(sizeof v), (unsigned long long)a);
			memcpy(&v, w.run->params + a, sizeof v);
			d[l] = R(v);
		});
	}
}
template <class T> bool setParameterOf(Ins &i) {
	using Sign = typename std::make_signed<T>::type;
	bool sign = ptx::isSigned(i.type);
	Handler h = nullptr;
	if (i.width == 2) h = sign ? Handler(parameter<Sign, s16>) : Handler(parameter<T, u16>);
	if (i.width == 4) h = sign ? Handler(parameter<Sign, s32>) : Handler(parameter<T, u32>);
	if (i.width == 8) h = sign ? Handler(parameter<Sign, s64>) : Handler(parameter<T, u64>);
	return h && set(i, h, h);
}
inline bool setParameter(Ins &i) {
	switch (ptx::bytes(i.type)) {
	case 1: return setParameterOf<u8>(i);
	case 2: return setParameterOf<u16>(i);
	case 4: return setParameterOf<u32>(i);
	default: return setParameterOf<u64>(i);
	}
}

} // namespace
