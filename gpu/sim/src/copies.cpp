// Asynchronous copies to shared memory, and registers that may not have been written.
#include "code.hpp"
#include "launch.hpp"
#include <algorithm>
#include <cstdlib>
#include <cstring>

void addCopy(Warp &w, const Copy &c) {
	if (w.copyCount == w.copyRoom) {
		u32 room = w.copyRoom ? w.copyRoom * 2 : 64;
		auto *copies = static_cast<Copy *>(realloc(w.copies, room * sizeof c));
		if (!copies) throw Scarce{room * sizeof c};
		w.copies = copies;
		w.copyRoom = room;
	}
	w.copies[w.copyCount++] = c;
}

void startCopy(Warp &w, const Ins &i, int lane, u64 source, u32 target, u32 size, u32 valid) {
	Run &r = *w.run;
	if (r.checks) {
		if (valid) checkGlobal(w, i, lane, source, valid, Access::Read);
		checkShared(w, i, lane, target, size, Access::Write);
		for (u32 k = 0; k < size; k += 4) {
			u64 &s = r.sharedWrite[(target + k) / 4];
			// Neither a read nor a write passes such a stamp at once.
			s = (s & ~(stamp::Thread | stamp::Init)) | stamp::Pending << stamp::ThreadShift | stamp::Tail;
		}
	}
	addCopy(w, {target, source, u32(&i - r.ins), w.copyGroup, u8(lane), u8(size), u8(valid)});
}

void landCopies(Warp &w, u32 keep, bool all) {
	Run &r = *w.run;
	u32 left = 0;
	for (u32 k = 0; k < w.copyCount; k++) {
		const Copy &c = w.copies[k];
		// A lane waits for its own copies only.
		if (!(w.mask >> c.lane & 1) || !(all || c.group + keep < w.copyGroup)) {
			w.copies[left++] = c;
			continue;
		}
		memcpy(r.shared + c.target, r.arena.host + c.source, c.valid);
		memset(r.shared + c.target + c.valid, 0, size_t(c.size - c.valid));
		if (!r.checks) continue;
		for (u32 b = 0; b < c.size; b += 4) r.sharedWrite[(c.target + b) / 4] = (w.now + (u64(c.lane) << stamp::ThreadShift)) | stamp::Bytes | stamp::Init;
	}
	w.copyCount = left;
}

void trackBefore(Warp &w, const Ins &i) {
	auto &tracked = w.run->code->tracked;
	u32 active = w.mask;
	auto need = [&](u32 reg, u32 lanes) {
		auto t = tracked.find(reg);
		if (t == tracked.end()) return;
		if (u32 missing = lanes & ~w.defined[t->second]) fault(w, i, __builtin_ctz(missing), Fault::Uninitialised, "reads a register that was not written");
	};
	if (i.guard) {
		need(i.guard, active);
		u32 p = *reinterpret_cast<u32 *>(w.registers + i.guard);
		active &= i.flags & Negated ? ~p : p;
	}
	if (i.op == Op::Mov) return; // its result is as undefined as its source
	for (int k = 0; k < i.reads; k++) need(i.source(k), active);
}

void trackAfter(Warp &w, const Ins &i) {
	auto &tracked = w.run->code->tracked;
	u32 lanes = w.mask, defined = ~u32(0);
	if (i.op == Op::Mov) {
		auto s = tracked.find(i.source(0));
		if (s != tracked.end()) defined = w.defined[s->second];
	}
	for (int k = 0; k < i.writes; k++) {
		auto t = tracked.find(i.r[k]);
		if (t != tracked.end()) w.defined[t->second] = (w.defined[t->second] & ~lanes) | (defined & lanes);
	}
}
