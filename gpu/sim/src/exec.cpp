// The executor of one instruction set: it is compiled once for each.
#include "atomics.hpp"

namespace {

using ptx::Type;

template <template <class> class X> bool forWhole(Ins &i) {
	switch (i.type) {
	case Type::U16: case Type::B16: return setBoth<X<u16>>(i);
	case Type::S16: return setBoth<X<s16>>(i);
	case Type::U32: case Type::B32: return setBoth<X<u32>>(i);
	case Type::S32: return setBoth<X<s32>>(i);
	case Type::U64: case Type::B64: return setBoth<X<u64>>(i);
	case Type::S64: return setBoth<X<s64>>(i);
	default: return false;
	}
}
// forWidth is for what moves bits: their type does not matter.
template <template <class> class X> bool forWidth(Ins &i) {
	switch (ptx::bytes(i.type)) {
	case 2: return setBoth<X<u16>>(i);
	case 4: return setBoth<X<u32>>(i);
	default: return setBoth<X<u64>>(i);
	}
}
template <class F> struct UnaryBy { template <class T> using X = Unary<T, F>; };
template <class F> struct BinaryBy { template <class T> using X = Binary<T, F>; };
template <class F> struct MulAddBy { template <class T> using X = MulAdd<T, F>; };
template <class F> struct CountBy { template <class T> using X = Count<T, F>; };
template <bool Sub, bool In, bool Out> struct CarryBy { template <class T> using X = Carry<T, Sub, In, Out>; };

template <class F> bool bitwise(Ins &i) {
	if (i.type == Type::Pred) return set(i, predicates<F>, predicates<F>);
	return forWidth<BinaryBy<F>::template X>(i);
}
template <class F> bool wholeWide(Ins &i) {
	switch (i.type) {
	case Type::U16: return setBoth<Wide<u16>>(i);
	case Type::S16: return setBoth<Wide<s16>>(i);
	case Type::U32: return setBoth<Wide<u32>>(i);
	default: return setBoth<Wide<s32>>(i);
	}
}
bool wholeWideAdd(Ins &i) {
	switch (i.type) {
	case Type::U16: return setBoth<WideAdd<u16>>(i);
	case Type::S16: return setBoth<WideAdd<s16>>(i);
	case Type::U32: return setBoth<WideAdd<u32>>(i);
	default: return setBoth<WideAdd<s32>>(i);
	}
}
template <class F, bool Z> bool realOf(Ins &i) {
	switch (i.op) {
	case Op::Add: return setBoth<FBinary<F, Z, DoFAdd>>(i);
	case Op::Sub: return setBoth<FBinary<F, Z, DoFSub>>(i);
	case Op::Mul: return setBoth<FBinary<F, Z, DoFMul>>(i);
	case Op::Div: return setBoth<FBinary<F, Z, DoFDiv>>(i);
	case Op::Min: return setBoth<FBinary<F, Z, DoFPick<false>>>(i);
	case Op::Max: return setBoth<FBinary<F, Z, DoFPick<true>>>(i);
	case Op::Fma: return setBoth<FFma<F, Z>>(i);
	case Op::Sqrt: return setBoth<FUnary<F, Z, DoSqrt>>(i);
	case Op::Rcp: return setBoth<FUnary<F, Z, DoRcp>>(i);
	case Op::Neg: return setBoth<FSign<F, Z, false>>(i);
	case Op::Abs: return setBoth<FSign<F, Z, true>>(i);
	case Op::Copysign: return setBoth<FCopysign<F>>(i);
	default: return false;
	}
}
bool real(Ins &i) {
	bool z = i.flags & Ftz;
	if (i.type == Type::F32) return z ? realOf<float, true>(i) : realOf<float, false>(i);
	return z ? realOf<double, true>(i) : realOf<double, false>(i);
}
bool compares(Ins &i) {
	switch (i.type) {
	case Type::U16: case Type::B16: return setCompare<u16>(i);
	case Type::S16: return setCompare<s16>(i);
	case Type::U32: case Type::B32: return setCompare<u32>(i);
	case Type::S32: return setCompare<s32>(i);
	case Type::U64: case Type::B64: return setCompare<u64>(i);
	case Type::S64: return setCompare<s64>(i);
	case Type::F32: return setCompare<float>(i);
	default: return setCompare<double>(i);
	}
}
bool absolute(Ins &i) {
	switch (i.type) {
	case Type::S16: return setBoth<Unary<s16, DoAbs>>(i);
	case Type::S32: return setBoth<Unary<s32, DoAbs>>(i);
	default: return setBoth<Unary<s64, DoAbs>>(i);
	}
}
bool parts(Ins &i) {
	bool pack = i.op == Op::Pack;
	using A = Parts<u32, u16, 2>;
	using B = Parts<u64, u32, 2>;
	using C = Parts<u64, u16, 4>;
	if (i.width == 4) return pack ? set(i, A::pack<true>, A::pack<false>) : set(i, A::unpack<true>, A::unpack<false>);
	if (i.n == 2) return pack ? set(i, B::pack<true>, B::pack<false>) : set(i, B::unpack<true>, B::unpack<false>);
	return pack ? set(i, C::pack<true>, C::pack<false>) : set(i, C::unpack<true>, C::unpack<false>);
}
template <template <class> class X> bool for32or64(Ins &i) { return ptx::bytes(i.type) == 4 ? setBoth<X<u32>>(i) : setBoth<X<u64>>(i); }

template <bool C> bool resolveWith(Ins &i) {
	if (ptx::isFloat(i.type) && real(i)) return true;
	switch (i.op) {
	case Op::Nop: case Op::Fence: return set(i, nothing, nothing);
	case Op::Mov: return i.type == Type::Pred ? set(i, predicates<PredMove>, predicates<PredMove>) : forWidth<UnaryBy<DoMove>::X>(i);
	case Op::Pack: case Op::Unpack: return parts(i);
	case Op::LdParam: return setParameter(i);
	case Op::Ld: case Op::St: return setAccess<C>(i);
	case Op::Atom: return setAtomic<C>(i);
	case Op::CpAsync: return set(i, asyncCopy<C>, asyncCopy<C>);
	case Op::CpCommit: return set(i, commitCopies, commitCopies);
	case Op::CpWait: return set(i, waitCopies, waitCopies);
	case Op::Add: return forWhole<BinaryBy<DoAdd>::X>(i);
	case Op::Sub: return forWhole<BinaryBy<DoSub>::X>(i);
	case Op::Mul: return ptx::bytes(i.type) == 8 ? forWhole<BinaryBy<DoMul>::X>(i) : forWhole<BinaryBy<DoMul32>::X>(i);
	case Op::MulHi: return forWhole<BinaryBy<DoMulHi>::X>(i);
	case Op::MulWide: return wholeWide<void>(i);
	case Op::Mad: return ptx::bytes(i.type) == 8 ? forWhole<MulAddBy<DoMul>::X>(i) : forWhole<MulAddBy<DoMul32>::X>(i);
	case Op::MadHi: return forWhole<MulAddBy<DoMulHi>::X>(i);
	case Op::MadWide: return wholeWideAdd(i);
	case Op::Div: return forWhole<BinaryBy<DoDiv>::X>(i);
	case Op::Rem: return forWhole<BinaryBy<DoRem>::X>(i);
	case Op::Min: return forWhole<BinaryBy<DoMin>::X>(i);
	case Op::Max: return forWhole<BinaryBy<DoMax>::X>(i);
	case Op::Neg: return forWidth<UnaryBy<DoNeg>::X>(i);
	case Op::Abs: return absolute(i);
	case Op::AddCC: return for32or64<CarryBy<false, false, true>::X>(i);
	case Op::AddC: return for32or64<CarryBy<false, true, false>::X>(i);
	case Op::AddCCC: return for32or64<CarryBy<false, true, true>::X>(i);
	case Op::SubCC: return for32or64<CarryBy<true, false, true>::X>(i);
	case Op::SubC: return for32or64<CarryBy<true, true, false>::X>(i);
	case Op::SubCCC: return for32or64<CarryBy<true, true, true>::X>(i);
	case Op::And: return bitwise<DoAnd>(i);
	case Op::Or: return bitwise<DoOr>(i);
	case Op::Xor: return bitwise<DoXor>(i);
	case Op::Not: return i.type == Type::Pred ? set(i, predicates<PredNot>, predicates<PredNot>) : forWidth<UnaryBy<DoNot>::X>(i);
	case Op::Cnot: return forWidth<UnaryBy<DoCnot>::X>(i);
	case Op::Shl: return forWidth<Left>(i);
	case Op::Shr: return forWhole<Right>(i);
	case Op::ShfL: return setBoth<Funnel<true>>(i);
	case Op::ShfR: return setBoth<Funnel<false>>(i);
	case Op::Lop3: return setBoth<Logic3>(i);
	case Op::Prmt: return setBoth<Permute>(i);
	case Op::Bfe: return forWhole<Extract>(i);
	case Op::Bfi: return for32or64<Insert>(i);
	case Op::Bfind: return forWhole<CountBy<DoBfind>::X>(i);
	case Op::Brev: return for32or64<UnaryBy<DoBrev>::X>(i);
	case Op::Clz: return for32or64<CountBy<DoClz>::X>(i);
	case Op::Popc: return for32or64<CountBy<DoPopc>::X>(i);
	case Op::Setp: return compares(i);
	case Op::Selp: return forWidth<Select>(i);
	case Op::Cvt: return setConvert(i);
	case Op::ToShared: return setBoth<Window<false, true>>(i);
	case Op::FromShared: return setBoth<Window<true, true>>(i);
	case Op::ToLocal: return setBoth<Window<false, false>>(i);
	case Op::FromLocal: return setBoth<Window<true, false>>(i);
	case Op::IsSpace: return set(i, isSpace, isSpace);
	case Op::Shfl: return set(i, shuffle, shuffle);
	case Op::Vote: return set(i, vote, vote);
	case Op::Match: return ptx::bytes(i.type) == 4 ? set(i, match<u32>, match<u32>) : set(i, match<u64>, match<u64>);
	case Op::Redux: return set(i, reduce, reduce);
	case Op::Activemask: return set(i, activeMask, activeMask);
	case Op::Bar: return set(i, syncWarp, syncWarp);
	case Op::Bra: case Op::Exit: case Op::Trap: return set(i, nothing, nothing);
	default: return false;
	}
}

bool resolve(Ins &i, bool checks) { return checks ? resolveWith<true>(i) : resolveWith<false>(i); }

inline u32 guarded(Warp &w, const Ins &i, u32 mask) {
	if (!i.guard) return mask;
	u32 p = pred(w, i.guard);
	return mask & (i.flags & Negated ? ~p : p);
}

inline void step(Warp &w, const Ins &i, u32 mask, bool all) {
	if (__builtin_expect(i.tracked, 0)) {
		w.mask = mask;
		trackBefore(w, i);
		w.mask = guarded(w, i, mask);
		if (w.mask) (w.mask == w.live ? i.all : i.some)(w, i);
		trackAfter(w, i);
	} else if (!i.guard) {
		(all ? i.all : i.some)(w, i);
	} else if (u32 m = guarded(w, i, mask)) {
		w.mask = m;
		(m == w.live ? i.all : i.some)(w, i);
	} else {
		return;
	}
	w.mask = mask;
}

void drop(Warp &w, int g) { w.groups[g] = w.groups[--w.groupCount]; }

// passWarpBarriers lets go on who waits at barriers of the warp that are different
// instructions but name the same lanes, if all of those have come to one.
bool passWarpBarriers(Warp &w) {
	for (int g = 0; g < w.groupCount; g++) {
		auto at = [&](int k) -> const Ins & { return w.run->ins[w.run->blocks[w.groups[k].block].first]; };
		auto mask = [&](int k) { return at(k).op == Op::Bar && at(k).sub == BarWarp ? members(w, at(k))[__builtin_ctz(w.groups[k].mask)] : 0; };
		u32 named = mask(g), there = 0;
		for (int k = g; k < w.groupCount; k++)
			if (named && mask(k) == named) there |= w.groups[k].mask;
		if (!named || (named & w.live) != there) continue;
		for (int k = g; k < w.groupCount; k++)
			if (mask(k) == named) w.groups[k].block++;
		syncWarp(w, at(g));
		return true;
	}
	return false;
}

// pick merges groups that are at the same block and takes the one that is least far and
// need not wait: so those who are behind come to where the others are.
int pick(Warp &w) {
	for (int a = 0; a < w.groupCount; a++)
		for (int b = w.groupCount - 1; b > a; b--)
			if (w.groups[a].block == w.groups[b].block) {
				w.groups[a].mask |= w.groups[b].mask;
				drop(w, b);
			}
	int best = -1;
	for (int g = 0; g < w.groupCount; g++) {
		if (best >= 0 && w.groups[best].block < w.groups[g].block) continue;
		const Block &b = w.run->blocks[w.groups[g].block];
		if (b.meets) {
			w.mask = w.groups[g].mask;
			u32 ready = together(w, w.run->ins[b.first], w.groups[g].mask);
			if (!ready) continue;
			if (ready != w.groups[g].mask) {
				// Some of the group's lanes wait for others; these do not.
				w.groups[w.groupCount++] = {w.groups[g].block, w.groups[g].mask & ~ready};
				w.groups[g].mask = ready;
				return g;
			}
		}
		best = g;
	}
	if (best >= 0) return best;
	if (!passWarpBarriers(w)) diverged(w);
	return pick(w);
}

// run executes a warp until it waits at a barrier of the block or ends.
void run(Warp &w) {
	const Ins *ins = w.run->ins;
	const Block *blocks = w.run->blocks;
	while (w.groupCount) {
		int g = w.groupCount == 1 && !blocks[w.groups[0].block].meets ? 0 : pick(w);
		u32 at = w.groups[g].block, mask = w.groups[g].mask;
		for (bool go = true; go;) {
			const Block &b = blocks[at];
			bool all = mask == w.live;
			w.mask = mask;
			for (u32 k = b.first; k < b.last; k++) step(w, ins[k], mask, all);
			w.executed += b.last - b.first + 1;
			if (__builtin_expect(w.executed > w.run->budget, 0)) fault(w, ins[b.first], __builtin_ctz(mask), Fault::Timeout, "has executed %llu instructions", (unsigned long long)w.executed);
			u32 next = at + 1;
			if (b.ends) {
				const Ins &e = ins[b.last];
				if (__builtin_expect(e.tracked, 0)) trackBefore(w, e);
				u32 m = guarded(w, e, mask);
				switch (e.op) {
				case Op::Bra:
					if (m == mask) {
						next = b.target;
					} else if (m) {
						w.groups[g] = {at + 1, mask & ~m};
						w.groups[w.groupCount++] = {b.target, m};
						go = false;
						continue;
					}
					break;
				case Op::Exit:
					w.live &= ~m;
					mask &= ~m;
					if (!mask) {
						drop(w, g);
						go = false;
						continue;
					}
					break;
				case Op::Bar:
					w.barrier = src<u32>(w, e, 0)[__builtin_ctz(mask)] & 15;
					if (e.sub == BarArrive) {
						w.run->arrived[w.barrier] += Lanes;
						break;
					}
					w.groups[g] = {next, mask};
					w.barrierCount = e.reads > 1 ? src<u32>(w, e, 1)[__builtin_ctz(mask)] : 0;
					w.barrierIns = b.last;
					w.state = Warp::AtBarrier;
					return;
				default:
					if (m) fault(w, e, __builtin_ctz(m), Fault::Trap, "executes trap");
				}
			}
			at = next;
			if (w.groupCount > 1 || blocks[at].meets) {
				w.groups[g] = {at, mask};
				go = false;
			}
		}
	}
	w.state = Warp::Done;
}

} // namespace

extern const Isa SIM_ISA;
const Isa SIM_ISA = {SIM_ISA_NAME, resolve, run};
