// The judgement of accesses that are not plainly well, and the text of what is wrong.
#include "code.hpp"
#include "launch.hpp"
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace {

std::string threadName(const Warp &w, u32 t) {
	auto *b = w.run->launch->block;
	return std::to_string(t % b[0]) + "," + std::to_string(t / b[0] % b[1]) + "," + std::to_string(t / b[0] / b[1]);
}

struct Word {
	Warp &w;
	const Ins &i;
	int lane;
	u64 address;
	u32 bytes; // a bit for each
	Access access;
	bool shared;

	u64 me() const { return w.now + (u64(lane) << stamp::ThreadShift); }
	bool writes() const { return access == Access::Write || access == Access::StrongWrite || access == Access::Atomic; }
	bool strong() const { return access != Access::Read && access != Access::Write; }
	const char *does() const { return access == Access::Atomic ? "changes" : writes() ? "writes" : "reads"; }
	const char *space() const { return shared ? "shared" : "global"; }

	enum Order { Ordered, SameWarp, SameBlock, OtherBlock, OtherStream, InFlight };
	Order order(u64 s) const;
	void conflict(u64 s, Order o, const char *before) const;
	u64 merged(u64 old) const;
	void judge(u64 &write, u64 &read, u32 valid) const;
};

// order says what is between this access and one that left a stamp.
Word::Order Word::order(u64 s) const {
	u64 d = s ^ me(), t = stamp::thread(s), mine = stamp::serial(me());
	if (!shared) {
		if (stamp::serial(s) < w.run->hazard) return Ordered;
		if (stamp::serial(s) < w.run->firstSerial) {
			const Done *before = w.run->launch->device->doneWith(stamp::serial(s));
			return before && before->queued > w.run->launch->queued ? OtherStream : Ordered;
		}
		if (t == stamp::SeveralBlocks) return OtherBlock;
		if (stamp::serial(s) != mine) return OtherBlock;
	} else if (stamp::serial(s) != mine) {
		return Ordered;
	}
	if (t == stamp::Pending) return InFlight;
	if ((d & stamp::Thread) == 0 || (d & stamp::BarrierEpoch)) return Ordered;
	bool sameWarp = t < stamp::Warp0 ? t / Lanes == w.index : t == stamp::Warp0 + w.index;
	// Counts that are at their end say nothing any more.
	if ((s & stamp::BarrierEpoch) == stamp::BarrierEpoch) return Ordered;
	if (!sameWarp) return SameBlock;
	if ((d & stamp::WarpEpoch) || (s & stamp::WarpEpoch) == stamp::WarpEpoch) return Ordered;
	return SameWarp;
}

void Word::conflict(u64 s, Order o, const char *before) const {
	u64 t = stamp::thread(s);
	std::string who;
	if (o == OtherStream) {
		const Done *d = w.run->launch->device->doneWith(stamp::serial(s));
		fault(w, i, lane, Fault::Race, "%s global memory at 0x%llx, which %s has %s although it was queued later: nothing makes it wait", does(), (unsigned long long)address, d ? d->what.c_str() : "an operation", before);
	}
	if (o == InFlight) fault(w, i, lane, Fault::Race, "%s shared memory at 0x%llx, to which a copy is under way that was not waited for", does(), (unsigned long long)address);
	if (t >= stamp::Warp0) who = t == stamp::SeveralBlocks ? "several blocks" : t == stamp::SeveralWarps ? "several warps" : "several threads of warp " + std::to_string(t - stamp::Warp0);
	else who = "thread " + threadName(w, u32(t));
	if (o == OtherBlock && t != stamp::SeveralBlocks) {
		u64 b = stamp::serial(s) - w.run->firstSerial;
		auto *g = w.run->launch->grid;
		who += " of block " + std::to_string(b % g[0]) + "," + std::to_string(b / g[0] % g[1]) + "," + std::to_string(b / g[0] / g[1]);
	}
	const char *missing = o == OtherBlock ? "in this launch" : o == SameWarp ? "with no barrier of the warp between" : "with no barrier between";
	fault(w, i, lane, Fault::Race, "%s %s memory at 0x%llx, which %s %s %s %s", does(), space(), (unsigned long long)address, who.c_str(), t >= stamp::Warp0 ? "have" : "has", before, missing);
}

// merged is the stamp of this access and of an unordered one together: of those bytes that
// both touched, as of the others it would blame who did not touch them.
u64 Word::merged(u64 old) const {
	u64 b = u64(bytes) << stamp::BytesShift, flag = strong() ? stamp::Atomic : 0;
	Order o = order(old);
	// What was queued later stays: who changes the word in place has read it before.
	if (o == OtherStream && (old & b)) return old;
	if (o == Ordered || o == OtherStream || o == InFlight || !(old & b)) return me() | b | flag;
	b &= old;
	flag &= old;
	u64 base = (me() & ~stamp::Thread) | b | flag;
	if (o == SameWarp) return base | (stamp::Warp0 + w.index) << stamp::ThreadShift;
	if (o == SameBlock) return base | stamp::SeveralWarps << stamp::ThreadShift;
	return w.run->firstSerial << stamp::SerialShift | stamp::SeveralBlocks << stamp::ThreadShift | b | flag;
}

// judge checks one word and stamps it; valid is which of its bytes are allocated.
void Word::judge(u64 &write, u64 &read, u32 valid) const {
	u64 s = write, b = u64(bytes) << stamp::BytesShift;
	if (bytes & ~valid) fault(w, i, lane, Fault::OutOfBounds, "%s %s memory at 0x%llx, beyond the end of what is allocated", does(), space(), (unsigned long long)address);
	u64 init = !shared || stamp::serial(s) == stamp::serial(me()) ? s & stamp::Init : 0;
	bool flying = shared && order(s) == InFlight;
	if (access != Access::Write && access != Access::StrongWrite && !flying && (init & bytes) != bytes)
		fault(w, i, lane, Fault::Uninitialised, "%s %s memory at 0x%llx, which was not written", does(), space(), (unsigned long long)address);
	if ((s & b) && !((s & stamp::Atomic) && strong()))
		if (Order o = order(s)) conflict(s, o, "written");
	if (!writes()) {
		read = merged(read);
		return;
	}
	if ((read & b) && !((read & stamp::Atomic) && strong()))
		if (Order o = order(read)) conflict(read, o, "read");
	write = merged(s) | init | bytes | (s & stamp::Tail);
}

void judgeWords(Warp &w, const Ins &i, int lane, u64 offset, u32 size, Access a, bool shared) {
	Run &run = *w.run;
	for (u64 at = offset & ~u64(3); at < offset + size; at += 4) {
		u32 from = at < offset ? u32(offset - at) : 0, to = at + 4 > offset + size ? u32(offset + size - at) : 4;
		u32 bytes = ((1u << to) - 1) & ~((1u << from) - 1);
		u64 &write = (shared ? run.sharedWrite : run.arena.write)[at / 4], &read = (shared ? run.sharedRead : run.arena.read)[at / 4];
		u32 valid = 15;
		if (!write) {
			if (!shared) wild(w, i, lane, run.arena.base + offset, size, a != Access::Read && a != Access::StrongRead);
			valid = 0;
		} else if (write & stamp::Tail) {
			u64 end = 0;
			if (shared) {
				for (auto &v : run.code->shared)
					if (v.at <= at && at < v.at + v.size) end = v.at + v.size;
				if (!end) end = run.code->sharedDynamic + run.launch->dynamicShared;
			} else {
				Found f = run.launch->device->before(run.arena.base + at);
				end = f.address + f.size - run.arena.base;
			}
			valid = end - at < 4 ? (1u << (end - at)) - 1 : 15;
		}
		Word{w, i, lane, (shared ? 0 : run.arena.base) + offset, bytes, a, shared}.judge(write, read, valid);
	}
}

} // namespace

void checkGlobal(Warp &w, const Ins &i, int lane, u64 offset, u32 size, Access a) { judgeWords(w, i, lane, offset, size, a, false); }
void checkShared(Warp &w, const Ins &i, int lane, u32 offset, u32 size, Access a) { judgeWords(w, i, lane, offset, size, a, true); }

// A finding is one line: its class, where, and what in words.
void fault(Warp &w, const Ins &i, int lane, Fault f, const char *format, ...) {
	char what[512];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	const Run &r = *w.run;
	char line[1024];
	snprintf(line, sizeof line, "%s kernel=%s at=%s ptx=%u block=%u,%u,%u thread=%s device=%d: %s", className(f), r.code->name.c_str(), r.code->module->at(int(i.loc)).c_str(), i.line,
		r.bid[0], r.bid[1], r.bid[2], threadName(w, w.index * Lanes + u32(lane)).c_str(), r.launch->device->index, what);
	throw Broken{f, line};
}

void wild(Warp &w, const Ins &i, int lane, u64 address, u32 size, bool write) {
	const char *does = write ? "writes" : "reads";
	unsigned long long a = address;
	Device &own = *w.run->launch->device;
	int of = deviceOf(address);
	if (of >= 0 && of != own.index) fault(w, i, lane, Fault::OtherDevice, "%s %u bytes at 0x%llx, memory of device %d", does, size, a, of);
	if (of < 0) fault(w, i, lane, Fault::OutOfBounds, "%s %u bytes at 0x%llx, which is no memory of a device", does, size, a);
	if (u64 n = own.freed(address)) fault(w, i, lane, Fault::UseAfterFree, "%s %u bytes at 0x%llx, in %llu bytes that were freed", does, size, a, (unsigned long long)n);
	Found f = own.before(address);
	if (!f.size) fault(w, i, lane, Fault::OutOfBounds, "%s %u bytes of global memory at 0x%llx, before all that is allocated", does, size, a);
	fault(w, i, lane, Fault::OutOfBounds, "%s %u bytes of global memory at 0x%llx, %llu bytes from the begin of %llu allocated bytes", does, size, a, (unsigned long long)(address - f.address), (unsigned long long)f.size);
}

// Two devices have no serials in common: what an operation of the peer has done meanwhile
// is not found here, but that nothing runs before it is waited for shows it in the result.
void reachPeer(Warp &w, const Ins &i, int lane, Device *peer, u64 address, u32 size, bool write) {
	const char *does = write ? "writes" : "reads";
	if (address % size) fault(w, i, lane, Fault::Misaligned, "%s %u bytes of global memory at 0x%llx", does, size, (unsigned long long)address);
	u64 from = peer->offset(address), to = from + size;
	for (u64 k = from / 4; k * 4 < to; k++) {
		u64 &s = peer->arena.write[k], bytes = 15;
		if (from > k * 4) bytes &= 15ull << (from - k * 4);
		if (to < k * 4 + 4) bytes &= 15ull >> (k * 4 + 4 - to);
		if (!s || ((s & stamp::Tail) && !peer->with(address, size).size))
			fault(w, i, lane, Fault::OutOfBounds, "%s %u bytes at 0x%llx, which is not allocated on device %d", does, size, (unsigned long long)address, peer->index);
		if (write) __atomic_fetch_or(&s, bytes, __ATOMIC_RELAXED);
		else if ((s & bytes) != bytes) fault(w, i, lane, Fault::Uninitialised, "reads global memory of device %d at 0x%llx, which was not written", peer->index, (unsigned long long)address);
	}
}

void diverged(Warp &w) {
	// Who waits for what, in one sentence: the first group's view.
	const Group &g = w.groups[0];
	const Ins &i = w.run->ins[w.run->blocks[g.block].first];
	int lane = __builtin_ctz(g.mask);
	std::string others;
	for (int k = 1; k < w.groupCount; k++) {
		char t[64];
		const Ins &o = w.run->ins[w.run->blocks[w.groups[k].block].first];
		std::string at = w.run->code->module->at(int(o.loc));
		snprintf(t, sizeof t, ", lanes %08x wait at %s (ptx %u)", w.groups[k].mask, at.c_str(), o.line);
		others += t;
	}
	bool barrier = i.op == Op::Bar && i.sub != BarWarp;
	for (int k = 1; k < w.groupCount && !barrier; k++) {
		const Ins &o = w.run->ins[w.run->blocks[w.groups[k].block].first];
		barrier = o.op == Op::Bar && o.sub != BarWarp;
	}
	fault(w, i, lane, barrier ? Fault::Barrier : Fault::Shuffle, "lanes %08x wait for others of the warp, which do not come here%s", g.mask, others.c_str());
}
