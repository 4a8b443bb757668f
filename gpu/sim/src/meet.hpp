// Instructions of a whole warp: shuffles, votes, and the barrier of the warp.
#pragma once
#include "access.hpp"

namespace {

inline const u32 *members(Warp &w, const Ins &i) { return src<u32>(w, i, i.reads - 1); }

// together gives the lanes of a group that may execute a collective: those of whose mask
// everybody that lives has come.
inline u32 together(Warp &w, const Ins &i, u32 group) {
	if (i.op == Op::Bar && i.sub != BarWarp) return group == w.live ? group : 0;
	const u32 *m = members(w, i);
	u32 ready = 0, left = group;
	while (left) {
		u32 mask = m[__builtin_ctz(left)];
		u32 same = group & ask([&](int l) { return m[l] == mask; });
		if (same & ~mask) fault(w, i, __builtin_ctz(same & ~mask), Fault::Shuffle, "executes %s with a mask %08x that it is not in", "a collective", mask);
		u32 wanted = mask & w.live;
		if (u32 other = wanted & group & ~same) fault(w, i, __builtin_ctz(other), Fault::Shuffle, "comes with another mask than lane %d, whose mask %08x has it", __builtin_ctz(same), mask);
		if ((wanted & ~same) == 0) ready |= same;
		left &= ~same;
	}
	return ready;
}

inline void shuffle(Warp &w, const Ins &i) {
	const u32 *b = src<u32>(w, i, 1), *c = src<u32>(w, i, 2), *m = members(w, i);
	alignas(64) u32 a[Lanes];
	memcpy(a, src<u32>(w, i, 0), sizeof a);
	u32 *d = dest<u32>(w, i), in = 0;
	each(w.mask, [&](int l) {
		int by = int(b[l] & 31), clamp = int(c[l] & 31), segment = int(c[l] >> 8 & 31);
		int most = (l & segment) | (clamp & ~segment), least = l & segment, j = l;
		bool ok = false;
		switch (ShflMode(i.sub)) {
		case ShflMode::Up: j = l - by, ok = j >= most; break;
		case ShflMode::Down: j = l + by, ok = j <= most; break;
		case ShflMode::Bfly: j = l ^ by, ok = j <= most; break;
		case ShflMode::Idx: j = least | (by & ~segment), ok = j <= most; break;
		}
		if (!ok) j = l;
		d[l] = a[j];
		if (!(m[l] & w.mask & bit[j])) {
			// A sum of fewer lanes than a warp reads past its last one, into a result that
			// nobody uses: that is no number. Elsewhere it is a mistake.
			if (ShflMode(i.sub) != ShflMode::Up && ShflMode(i.sub) != ShflMode::Down) fault(w, i, l, Fault::Shuffle, "reads lane %d, which does not take part (mask %08x)", j, m[l]);
			d[l] = ~u32(0);
		}
		in |= ok ? bit[l] : 0;
	});
	if (i.writes == 2) putPred(w, i.r[1], in);
}

inline void vote(Warp &w, const Ins &i) {
	const u32 *m = members(w, i);
	u32 p = pred(w, i.source(0)), out = 0;
	if (i.flags & NegatedC) p = ~p;
	each(w.mask, [&](int l) {
		u32 who = m[l] & w.mask, yes = p & who;
		bool r = VoteMode(i.sub) == VoteMode::All ? yes == who : VoteMode(i.sub) == VoteMode::Any ? yes != 0 : yes == 0 || yes == who;
		if (VoteMode(i.sub) == VoteMode::Ballot) dest<u32>(w, i)[l] = yes;
		else out |= r ? bit[l] : 0;
	});
	if (VoteMode(i.sub) != VoteMode::Ballot) putPred(w, i.r[0], out);
}

template <class T> void match(Warp &w, const Ins &i) {
	const u32 *m = members(w, i);
	alignas(64) T a[Lanes];
	memcpy(a, src<T>(w, i, 0), sizeof a);
	u32 all = 0;
	each(w.mask, [&](int l) {
		u32 who = m[l] & w.mask, same = 0;
		each(who, [&](int k) { same |= a[k] == a[l] ? bit[k] : 0; });
		bool every = same == who;
		if (VoteMode(i.sub) == VoteMode::All) same = every ? who : 0;
		all |= every ? bit[l] : 0;
		dest<u32>(w, i)[l] = same;
	});
	if (i.writes == 2) putPred(w, i.r[1], all);
}

inline u32 combine(AtomOp op, u32 a, u32 b, bool sign) {
	switch (op) {
	case AtomOp::Add: return a + b;
	case AtomOp::Min: return (sign ? s32(a) < s32(b) : a < b) ? a : b;
	case AtomOp::Max: return (sign ? s32(a) > s32(b) : a > b) ? a : b;
	case AtomOp::And: return a & b;
	case AtomOp::Or: return a | b;
	default: return a ^ b;
	}
}

inline void reduce(Warp &w, const Ins &i) {
	const u32 *m = members(w, i);
	alignas(64) u32 a[Lanes];
	memcpy(a, src<u32>(w, i, 0), sizeof a);
	each(w.mask, [&](int l) {
		u32 who = m[l] & w.mask, r = a[__builtin_ctz(who)];
		each(who & (who - 1), [&](int k) { r = combine(AtomOp(i.sub), r, a[k], i.type == ptx::Type::S32); });
		dest<u32>(w, i)[l] = r;
	});
}

// syncWarp orders what the lanes did before with what they do after. At its last value
// the count stays; accesses then count as ordered.
inline void syncWarp(Warp &w, const Ins &) {
	if ((w.now & stamp::WarpEpoch) != stamp::WarpEpoch) w.now += u64(1) << stamp::WarpShift;
}

inline void activeMask(Warp &w, const Ins &i) {
	u32 m = w.mask;
	put<false>(w, dest<u32>(w, i), [&](int) { return m; });
}

inline void nothing(Warp &, const Ins &) {}

} // namespace
