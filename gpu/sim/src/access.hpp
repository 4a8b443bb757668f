// Loads and stores. An access first finds the offsets of its lanes and judges them, then
// moves the data. Most accesses of a warp are to words in a row or to one word, and these
// are judged as a whole.
#pragma once
#include "convert.hpp"

namespace {

enum Place : u8 { InGlobal, InShared };

// Offsets of the lanes, and how they lie. Runs are lanes that are adjacent in memory: 32,
// or each 16 or 8 (0: none of these).
struct Offsets {
	alignas(64) u64 of[Lanes];
	int run;
	bool same, eights; // all are equal; those of each eight lanes are
	bool full() const { return run == Lanes; }
};

template <Place P> inline u64 *writers(Warp &w) { return P == InGlobal ? w.run->arena.write : w.run->sharedWrite; }
template <Place P> inline u64 *readers(Warp &w) { return P == InGlobal ? w.run->arena.read : w.run->sharedRead; }
template <Place P> inline u8 *bytesOf(Warp &w) { return P == InGlobal ? w.run->arena.host : w.run->shared; }

// past says that nothing in a stamp can be unordered with this thread: in global memory
// that it is of an earlier launch, in shared memory of an earlier block or barrier, in
// both that it is of the thread itself.
template <Place P> inline bool past(u64 s, u64 me, u64 hazard) {
	u64 d = s ^ me;
	if (P == InGlobal) return stamp::serial(s) < hazard || (d & (stamp::Serial | stamp::Thread)) == 0;
	return (d & (stamp::Serial | stamp::BarrierEpoch)) != 0 || (d & stamp::Thread) == 0;
}

// readable says at once that a word may be read.
template <Place P> inline bool readable(u64 s, u64 me, u64 hazard) {
	bool init = (s & stamp::Init) == stamp::Init && (P == InGlobal || stamp::serial(s) == stamp::serial(me));
	return init && past<P>(s, me, hazard);
}

// Reader makes the stamps of words that a warp reads: of one lane, or of several threads
// where others have read the word with nothing between.
struct Reader {
	u64 now, many, warps, blocks, first, hazard; // many, warps and blocks are stamps of several threads
	explicit Reader(Warp &w) {
		now = w.now | stamp::Bytes;
		many = (now & ~stamp::Thread) | (stamp::Warp0 + w.index) << stamp::ThreadShift;
		warps = (now & ~stamp::Thread) | stamp::SeveralWarps << stamp::ThreadShift;
		first = w.run->firstSerial << stamp::SerialShift;
		hazard = w.run->hazard << stamp::SerialShift;
		blocks = first | stamp::SeveralBlocks << stamp::ThreadShift | stamp::Bytes;
	}
	u64 lane(int l) const { return now + (u64(l) << stamp::ThreadShift); }
	template <Place P> bool old(u64 r) const {
		u64 d = r ^ now;
		if (P == InShared) return (d & (stamp::Serial | stamp::BarrierEpoch)) != 0;
		return r < hazard || ((d & stamp::Serial) == 0 && (d & stamp::BarrierEpoch) != 0 && ((r ^ blocks) & stamp::Thread) != 0);
	}
	// next is the stamp after a read by me, which is one lane or many; whole says that the
	// stamp before was of the whole word, or does not matter.
	template <Place P> u64 next(u64 r, u64 me, bool &whole) const {
		constexpr u64 ofWarp = stamp::Thread & ~(u64(Lanes - 1) << stamp::ThreadShift);
		u64 d = r ^ me;
		bool o = old<P>(r);
		bool launched = P == InShared || r >= first; // else of an operation that may have been queued later
		whole = o || ((r & stamp::Bytes) == stamp::Bytes && launched);
		bool sameWarp = ((r ^ now) & ofWarp) == 0 || ((r ^ many) & stamp::Thread) == 0;
		u64 both = sameWarp ? ((d & stamp::WarpEpoch) == 0 ? many : me) : warps;
		u64 n = o || (d & stamp::Thread) == 0 ? me : both;
		if (P == InShared) return n;
		n = !o && (d & stamp::Serial) != 0 ? blocks : n;
		return ((r ^ blocks) & (stamp::Serial | stamp::Thread)) == 0 ? r : n;
	}
};

// find computes the offsets of an access of Size bytes a lane. A lane that does not
// execute gets the offset of one that does.
template <Place P, int Size> inline bool find(Warp &w, const Ins &i, int base, Offsets &o) {
	u64 *off = o.of;
	u32 m = w.mask;
	u64 by = u64(i.imm) - (P == InGlobal ? w.run->arena.base : i.space == ptx::Space::Generic ? SharedWindow : 0);
	u64 end = (P == InGlobal ? w.run->arena.size : w.run->sharedBytes) - Size;
	if (i.sub2 == 4) {
		const u32 *a = src<u32>(w, i, base);
		for (int l = 0; l < Lanes; l++) off[l] = u32(a[l] + u32(by));
	} else {
		const u64 *a = src<u64>(w, i, base);
		for (int l = 0; l < Lanes; l++) off[l] = a[l] + by;
	}
	if (m != ~u32(0)) {
		u64 any = off[__builtin_ctz(m)];
		for (int l = 0; l < Lanes; l++) off[l] = m & bit[l] ? off[l] : any;
	}
	u64 bad = 0, not32 = 0, notSame = 0, first = off[0];
	for (int l = 0; l < Lanes; l++) {
		bad |= u64(off[l] > end) | (off[l] & (Size - 1));
		not32 |= off[l] ^ (first + u64(l) * Size);
		notSame |= off[l] ^ first;
	}
	o.same = !notSame;
	o.run = m == ~u32(0) && !not32 ? Lanes : 0;
	o.eights = false;
	if (m == ~u32(0) && not32 && notSame) {
		u64 not16 = 0, not8 = 0, notEights = 0;
		for (int h = 0; h < Lanes; h += 16)
			for (int l = 0; l < 16; l++) not16 |= off[h + l] ^ (off[h] + u64(l) * Size);
		for (int e = 0; e < Lanes; e += 8)
			for (int l = 0; l < 8; l++) {
				not8 |= off[e + l] ^ (off[e] + u64(l) * Size);
				notEights |= off[e + l] ^ off[e];
			}
		o.run = !not16 ? 16 : !not8 ? 8 : 0;
		o.eights = !notEights;
	}
	return !bad;
}

// misplaced finds the lane whose address is bad. It does not return.
template <Place P, int Size> __attribute__((cold, noinline)) void misplaced(Warp &w, const Ins &i, const Offsets &o, bool write) {
	each(w.mask, [&](int l) {
		u64 a = o.of[l] + (P == InGlobal ? w.run->arena.base : 0);
		if (P == InGlobal && o.of[l] > w.run->arena.size - Size) wild(w, i, l, a, Size, write);
		if (P == InShared && o.of[l] > w.run->sharedBytes - u64(Size)) fault(w, i, l, Fault::OutOfBounds, "%s %d bytes at 0x%llx, shared memory of the block has %u", write ? "writes" : "reads", Size, (unsigned long long)a, w.run->sharedBytes);
		if (o.of[l] & (Size - 1)) fault(w, i, l, Fault::Misaligned, "%s %d bytes of %s memory at 0x%llx", write ? "writes" : "reads", Size, P == InGlobal ? "global" : "shared", (unsigned long long)a);
	});
	__builtin_unreachable();
}

template <Place P, int Size> __attribute__((noinline)) void judgeEach(Warp &w, const Ins &i, const Offsets &o, Access a) {
	each(w.mask, [&](int l) {
		if (P == InGlobal) checkGlobal(w, i, l, o.of[l], Size, a);
		else checkShared(w, i, l, u32(o.of[l]), Size, a);
	});
}

// readRun judges words in a row, of which each lane from one on reads so many, or several
// lanes each.
template <Place P, int Words, int Count, bool One> inline bool readRun(const Reader &k, u64 *W, u64 *R, u64 hazard, int lane) {
	u64 bad = 0, from = k.lane(lane);
	for (int n = 0; n < Count; n++) {
		u64 me = One ? from + (u64(n / Words) << stamp::ThreadShift) : k.many;
		bool whole;
		k.next<P>(R[n], me, whole);
		bad |= u64(!readable<P>(W[n], me, hazard)) | u64(!whole);
	}
	if (bad) return false;
	for (int n = 0; n < Count; n++) {
		bool whole;
		R[n] = k.next<P>(R[n], One ? from + (u64(n / Words) << stamp::ThreadShift) : k.many, whole);
	}
	return true;
}
// readRuns does so for all runs of so many lanes: of the same words again, or of others, as
// the tiles of products have them.
template <Place P, int Words, int Run> inline bool readRuns(const Reader &k, u64 *W, u64 *R, u64 hazard, const u64 *off) {
	bool same = true;
	for (int l = Run; l < Lanes; l += Run) same &= off[l] == off[0];
	if (same) return readRun<P, Words, Run * Words, false>(k, W + off[0] / 4, R + off[0] / 4, hazard, 0);
	bool ok = true;
	for (int l = 0; ok && l < Lanes; l += Run) ok = readRun<P, Words, Run * Words, true>(k, W + off[l] / 4, R + off[l] / 4, hazard, l);
	return ok;
}

// judgeRead and judgeWrite let pass what is plain and leave the rest to judgeEach.
template <Place P, int Size> inline void judgeRead(Warp &w, const Ins &i, const Offsets &o) {
	constexpr int words = Size / 4 ? Size / 4 : 1;
	u64 *W = writers<P>(w), *R = readers<P>(w), hazard = w.run->hazard;
	if (Size < 4 || (i.flags & Strong)) return judgeEach<P, Size>(w, i, o, i.flags & Strong ? Access::StrongRead : Access::Read);
	Reader k(w);
	u64 *W0 = W + o.of[0] / 4, *R0 = R + o.of[0] / 4;
	bool several = w.mask & (w.mask - 1);
	if (o.same && several && readRun<P, words, words, false>(k, W0, R0, hazard, 0)) return;
	if (o.run == 32 && readRun<P, words, 32 * words, true>(k, W0, R0, hazard, 0)) return;
	if (o.run == 16 && readRuns<P, words, 16>(k, W, R, hazard, o.of)) return;
	if (o.run == 8 && readRuns<P, words, 8>(k, W, R, hazard, o.of)) return;
	if (o.eights) {
		bool ok = true;
		for (int e = 0; e < Lanes; e += 8) ok &= readRun<P, words, words, false>(k, W + o.of[e] / 4, R + o.of[e] / 4, hazard, 0);
		if (ok) return;
	}
	each(w.mask, [&](int l) {
		u64 at = o.of[l] / 4, me = k.lane(l);
		bool ok = true, whole;
		for (int n = 0; n < words; n++) {
			k.next<P>(R[at + n], me, whole);
			ok &= whole && readable<P>(W[at + n], me, hazard);
		}
		if (ok)
			for (int n = 0; n < words; n++) R[at + n] = k.next<P>(R[at + n], me, whole);
		else if (P == InGlobal)
			checkGlobal(w, i, l, o.of[l], Size, Access::Read);
		else
			checkShared(w, i, l, u32(o.of[l]), Size, Access::Read);
	});
}

template <Place P, int Size> inline void judgeWrite(Warp &w, const Ins &i, const Offsets &o) {
	constexpr int words = Size / 4 ? Size / 4 : 1;
	u64 *W = writers<P>(w), *R = readers<P>(w), hazard = w.run->hazard, now = w.now | stamp::Bytes | stamp::Init;
	if (Size < 4 || (i.flags & Strong)) return judgeEach<P, Size>(w, i, o, i.flags & Strong ? Access::StrongWrite : Access::Write);
	if (o.full()) {
		u64 *W0 = W + o.of[0] / 4, *R0 = R + o.of[0] / 4;
		u64 bad = 0;
		for (int k = 0; k < Lanes * words; k++) {
			u64 me = now + (u64(k / words) << stamp::ThreadShift);
			bad |= u64(W0[k] == 0) | (W0[k] & stamp::Tail) | u64(!past<P>(W0[k], me, hazard)) | u64(!past<P>(R0[k], me, hazard));
		}
		if (!bad) {
			for (int k = 0; k < Lanes * words; k++) W0[k] = now + (u64(k / words) << stamp::ThreadShift);
			return;
		}
	}
	each(w.mask, [&](int l) {
		u64 at = o.of[l] / 4, me = now + (u64(l) << stamp::ThreadShift);
		bool ok = true;
		for (int k = 0; k < words; k++) ok &= W[at + k] != 0 && !(W[at + k] & stamp::Tail) && past<P>(W[at + k], me, hazard) && past<P>(R[at + k], me, hazard);
		if (ok)
			for (int k = 0; k < words; k++) W[at + k] = me;
		else if (P == InGlobal)
			checkGlobal(w, i, l, o.of[l], Size, Access::Write);
		else
			checkShared(w, i, l, u32(o.of[l]), Size, Access::Write);
	});
}

template <Place P, int Size, bool Check> inline void locate(Warp &w, const Ins &i, bool write, Offsets &o) {
	if (!find<P, Size>(w, i, 0, o)) misplaced<P, Size>(w, i, o, write);
	if (!Check) return;
	if (write) judgeWrite<P, Size>(w, i, o);
	else judgeRead<P, Size>(w, i, o);
}

// load of N elements of type T into registers of R; generic addresses are sorted before.
template <Place P, class T, class R, int N, bool Check> void load(Warp &w, const Ins &i) {
	if (!w.mask) return;
	Offsets o;
	locate<P, int(sizeof(T)) * N, Check>(w, i, false, o);
	const u8 *p = bytesOf<P>(w);
	const bool full = w.mask == ~u32(0);
	for (int k = 0; k < N; k++) {
		R *d = reg<R>(w, i.r[k]);
		if (o.same) {
			T v;
			memcpy(&v, p + o.of[0] + size_t(k) * sizeof(T), sizeof v);
			if (full) put<true>(w, d, [&](int) { return v; });
			else put<false>(w, d, [&](int) { return v; });
		} else if (o.full()) {
			const T *t = reinterpret_cast<const T *>(p + o.of[0]) + k;
			put<true>(w, d, [&](int l) { return t[l * N]; });
		} else {
			const u8 *q = p + size_t(k) * sizeof(T);
			if (full) put<true>(w, d, [&](int l) { return *reinterpret_cast<const T *>(q + o.of[l]); });
			else put<false>(w, d, [&](int l) { return *reinterpret_cast<const T *>(q + o.of[l]); });
		}
	}
}

template <Place P, class T, class R, int N, bool Check> void store(Warp &w, const Ins &i) {
	if (!w.mask) return;
	Offsets o;
	locate<P, int(sizeof(T)) * N, Check>(w, i, true, o);
	u8 *p = bytesOf<P>(w);
	for (int k = 0; k < N; k++) {
		const R *s = src<R>(w, i, 1 + k);
		if (o.full()) {
			T *t = reinterpret_cast<T *>(p + o.of[0]) + k;
			for (int l = 0; l < Lanes; l++) t[l * N] = T(s[l]);
		} else {
			u8 *q = p + size_t(k) * sizeof(T);
			each(w.mask, [&](int l) { *reinterpret_cast<T *>(q + o.of[l]) = T(s[l]); });
		}
	}
}

// Local memory is laid out by words, the lanes of one beside each other.
void localAccess(Warp &w, const Ins &i) {
	const bool write = i.op == Op::St, sign = !write && ptx::isSigned(i.type);
	const Run &run = *w.run;
	const u64 by = i.space == ptx::Space::Generic ? LocalWindow : 0;
	const size_t element = size_t(ptx::bytes(i.type)), size = element * i.n, width = i.width;
	each(w.mask, [&](int l) {
		u64 at = (i.sub2 == 4 ? u64(u32(src<u32>(w, i, 0)[l] + u32(i.imm))) : src<u64>(w, i, 0)[l] + u64(i.imm)) - by;
		const char *does = write ? "writes" : "reads";
		if (at % size) fault(w, i, l, Fault::Misaligned, "%s %d bytes of local memory at 0x%llx", does, int(size), (unsigned long long)at);
		bool in = at + size <= run.localBytes && at < run.localBytes;
		for (u64 k = at; in && k < at + size; k++) in = run.localValid[k];
		if (!in) fault(w, i, l, Fault::OutOfBounds, "%s %d bytes of local memory at 0x%llx", does, int(size), (unsigned long long)at);
		for (int k = 0; k < i.n; k++) {
			u64 a = at + u64(k) * element, v = 0;
			u8 *r = w.registers + (write ? i.source(1 + k) : i.r[k]) + size_t(l) * width;
			if (write) memcpy(&v, r, element);
			for (size_t b = 0; b < element; b += 4) {
				u64 word = (a + b) / 4;
				u8 *p = reinterpret_cast<u8 *>(w.local + word * Lanes + l) + a % 4;
				size_t n = element < 4 ? element : 4;
				if (write) {
					memcpy(p, reinterpret_cast<u8 *>(&v) + b, n);
					w.localInit[word] |= bit[l];
				} else {
					if (run.checks && !(w.localInit[word] & bit[l])) fault(w, i, l, Fault::Uninitialised, "reads local memory at 0x%llx, which was not written", (unsigned long long)a);
					memcpy(reinterpret_cast<u8 *>(&v) + b, p, n);
				}
			}
			if (sign) v = u64(s64(v << (64 - 8 * element)) >> (64 - 8 * element));
			if (!write) memcpy(r, &v, width);
		}
	});
}

// generic finds out in which memory an address lies. The lanes of a warp may differ.
template <Handler Global, Handler Shared, Handler Local> void generic(Warp &w, const Ins &i) {
	const u64 *a = src<u64>(w, i, 0);
	u32 all = w.mask;
	u32 shared = all & ask([&](int l) { return a[l] + u64(i.imm) - SharedWindow < WindowSize; });
	u32 local = all & ask([&](int l) { return a[l] + u64(i.imm) - LocalWindow < WindowSize; });
	const struct { u32 mask; Handler h; } parts[] = {{all & ~shared & ~local, Global}, {shared, Shared}, {local, Local}};
	for (auto &p : parts) {
		w.mask = p.mask;
		if (p.mask) p.h(w, i);
	}
	w.mask = all;
}

// narrow moves what has no form of its own: elements that are smaller than their register,
// one lane after the other.
template <Place P, int Size, bool Check> void narrow(Warp &w, const Ins &i) {
	if (!w.mask) return;
	Offsets o;
	bool write = i.op == Op::St;
	locate<P, Size, Check>(w, i, write, o);
	const size_t each1 = size_t(ptx::bytes(i.type)), width = i.width;
	const bool sign = !write && ptx::isSigned(i.type);
	each(w.mask, [&](int l) {
		for (int k = 0; k < i.n; k++) {
			u8 *p = bytesOf<P>(w) + o.of[l] + size_t(k) * each1;
			u8 *r = w.registers + (write ? i.source(1 + k) : i.r[k]) + size_t(l) * width;
			if (write) {
				memcpy(p, r, each1);
				continue;
			}
			u64 v = 0;
			memcpy(&v, p, each1);
			if (sign) v = u64(s64(v << (64 - 8 * each1)) >> (64 - 8 * each1));
			memcpy(r, &v, width);
		}
	});
}

// peers has lanes that use memory of a peer do so, and the others what they do anyway: Own
// with the checks there are, Other without.
template <Handler Own, Handler Other> void peers(Warp &w, const Ins &i) {
	Run &r = *w.run;
	if (__builtin_expect(!r.peers, 1)) return Own(w, i);
	const u32 all = w.mask;
	const Arena own = r.arena;
	const u64 *a = src<u64>(w, i, 0);
	for (const Peer &p : *r.peers) {
		u32 there = i.sub2 == 4 ? 0 : w.mask & ask([&](int l) { return a[l] + u64(i.imm) - p.arena.base < p.arena.size; }), rest = w.mask & ~there;
		if (!there) continue;
		if (r.checks) each(there, [&](int l) { reachPeer(w, i, l, p.device, a[l] + u64(i.imm), u32(ptx::bytes(i.type) * i.n), i.op == Op::St); });
		w.mask = there;
		r.arena = p.arena;
		Other(w, i);
		r.arena = own;
		w.mask = rest;
	}
	Own(w, i);
	w.mask = all;
}

template <Handler Global, Handler Shared, Handler Local> bool setSpaces(Ins &i) {
	Handler h = Global;
	if (i.space == ptx::Space::Shared) h = Shared;
	if (i.space == ptx::Space::Local) h = Local;
	if (i.space == ptx::Space::Generic) h = generic<Global, Shared, Local>;
	return set(i, h, h);
}
template <class T, int N, bool C> bool setWhole(Ins &i) {
	if (i.op == Op::St) return setSpaces<peers<store<InGlobal, T, T, N, C>, store<InGlobal, T, T, N, false>>, store<InShared, T, T, N, C>, localAccess>(i);
	return setSpaces<peers<load<InGlobal, T, T, N, C>, load<InGlobal, T, T, N, false>>, load<InShared, T, T, N, C>, localAccess>(i);
}
template <int Size, bool C> bool setNarrow(Ins &i) { return setSpaces<peers<narrow<InGlobal, Size, C>, narrow<InGlobal, Size, false>>, narrow<InShared, Size, C>, localAccess>(i); }

template <bool C> bool setAccess(Ins &i) {
	int size = ptx::bytes(i.type);
	if (size == 4 && i.width == 4) return i.n == 4 ? setWhole<u32, 4, C>(i) : i.n == 2 ? setWhole<u32, 2, C>(i) : setWhole<u32, 1, C>(i);
	if (size == 8 && i.width == 8) return i.n == 2 ? setWhole<u64, 2, C>(i) : setWhole<u64, 1, C>(i);
	switch (size * i.n) {
	case 1: return setNarrow<1, C>(i);
	case 2: return setNarrow<2, C>(i);
	case 4: return setNarrow<4, C>(i);
	case 8: return setNarrow<8, C>(i);
	case 16: return setNarrow<16, C>(i);
	default: return false;
	}
}

} // namespace
