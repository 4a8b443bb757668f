#include "code.hpp"
#include "launch.hpp"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

// Buffer is memory that a thread keeps for its next launch.
struct Buffer {
	u8 *p = nullptr;
	size_t size = 0;
	~Buffer() { free(p); }
	template <class T> T *take(size_t count, bool zero) {
		size_t need = (count * sizeof(T) + 127) / 64 * 64;
		if (need > size) {
			free(p);
			size = 0;
			p = static_cast<u8 *>(aligned_alloc(64, need));
			if (!p) throw Scarce{need};
			size = need;
		}
		if (zero) memset(p, 0, need);
		return reinterpret_cast<T *>(p);
	}
};

struct Scratch {
	Buffer registers, shared, sharedWrite, sharedRead, local, localInit, localValid, defined;
	std::vector<Warp> warps;
	~Scratch() {
		for (auto &w : warps) free(w.copies);
	}
};

// Worker executes blocks of one launch on one thread.
struct Worker {
	Launch &l;
	const Code &code;
	Scratch &scratch;
	Run run{};
	Warp *warps;
	u32 count;

	Worker(Launch &l, Scratch &s) : l(l), code(*l.code), scratch(s) { prepare(); }
	void prepare();
	void registers(Warp &w);
	void sharedStamps(u32 at, u32 size);
	void block(u32 index);
	void begin(Warp &w);
	bool release();
	[[noreturn]] void stuck(Warp &w);
};

u32 specialOf(const std::string &n, const Launch &l, const u32 *bid, u32 thread) {
	u32 axis = n.back() == 'x' ? 0 : n.back() == 'y' ? 1 : 2, lane = thread % Lanes;
	const u32 *b = l.block;
	if (!n.compare(0, 5, "%tid.")) return axis == 0 ? thread % b[0] : axis == 1 ? thread / b[0] % b[1] : thread / b[0] / b[1];
	if (!n.compare(0, 6, "%ntid.")) return b[axis];
	if (!n.compare(0, 7, "%ctaid.")) return bid[axis];
	if (!n.compare(0, 8, "%nctaid.")) return l.grid[axis];
	if (n == "%laneid") return lane;
	if (n == "%smid") return (bid[0] + l.grid[0] * (bid[1] + l.grid[1] * bid[2])) % Multiprocessors;
	if (n == "%nsmid") return Multiprocessors;
	if (n == "%warpid") return thread / Lanes;
	if (n == "%nwarpid") return (l.threads() + Lanes - 1) / Lanes;
	u32 eq = 1u << lane;
	if (n == "%lanemask_eq") return eq;
	if (n == "%lanemask_lt") return eq - 1;
	if (n == "%lanemask_le") return eq | (eq - 1);
	return n == "%lanemask_ge" ? ~(eq - 1) : ~(eq | (eq - 1));
}

void Worker::registers(Warp &w) {
	for (auto &c : code.constants) {
		u8 *r = w.registers + c.at;
		if (c.pred) {
			memcpy(r, &c.value, 4);
			continue;
		}
		for (int k = 0; k < Lanes; k++) memcpy(r + u32(k) * c.width, &c.value, c.width);
	}
	u32 bid[3] = {};
	for (auto &s : code.specials)
		for (u32 k = 0; k < Lanes; k++) reinterpret_cast<u32 *>(w.registers + s.at)[k] = specialOf(s.name, l, bid, w.index * Lanes + k);
}

void Worker::sharedStamps(u32 at, u32 size) {
	for (u32 k = 0; k < size; k += 4) run.sharedWrite[(at + k) / 4] = stamp::Allocated | (size - k < 4 ? stamp::Tail : 0);
}

void Worker::prepare() {
	count = (l.threads() + Lanes - 1) / Lanes;
	run.ins = code.ins.data();
	run.blocks = code.blocks.data();
	run.code = &code;
	run.launch = &l;
	run.params = l.params.data();
	run.paramBytes = code.paramBytes;
	run.arena = l.device->arena;
	run.peers = l.peers.empty() ? nullptr : &l.peers;
	run.firstSerial = l.firstSerial;
	run.hazard = l.hazard;
	run.checks = settings().checks;
	run.budget = settings().budget;
	run.sharedBytes = std::max(code.sharedDynamic + l.dynamicShared, u32(16));
	run.shared = scratch.shared.take<u8>(run.sharedBytes, false);
	if (run.checks) {
		size_t words = run.sharedBytes / 4 + 4;
		run.sharedWrite = scratch.sharedWrite.take<u64>(words, true);
		run.sharedRead = scratch.sharedRead.take<u64>(words, true);
		for (auto &v : code.shared) sharedStamps(v.at, v.size);
		sharedStamps(code.sharedDynamic, l.dynamicShared);
	}
	run.localBytes = code.localBytes;
	u8 *valid = scratch.localValid.take<u8>(code.localBytes, true);
	for (auto &v : code.local) memset(valid + v.at, 1, v.size);
	run.localValid = valid;
	size_t words = code.localBytes / 4 + 4;
	u32 *local = scratch.local.take<u32>(words * Lanes * (code.localBytes ? count : 0), false);
	u32 *init = scratch.localInit.take<u32>(words * count, true);
	u32 *defined = scratch.defined.take<u32>(code.tracked.size() * count, true);
	u8 *regs = scratch.registers.take<u8>(size_t(code.frame + 63) / 64 * 64 * count, false);
	if (scratch.warps.size() < count) scratch.warps.resize(count);
	warps = scratch.warps.data();
	for (u32 k = 0; k < count; k++) {
		Warp &w = warps[k];
		Copy *copies = w.copies;
		u32 room = w.copyRoom;
		w = Warp{};
		w.copies = copies;
		w.copyRoom = room;
		w.run = &run;
		w.index = k;
		w.registers = regs + size_t(code.frame + 63) / 64 * 64 * k;
		w.local = local + (code.localBytes ? words * Lanes * k : 0);
		w.localInit = init + words * k;
		w.defined = defined + code.tracked.size() * k;
		u32 lanes = l.threads() - k * Lanes;
		w.born = lanes >= Lanes ? ~u32(0) : (1u << lanes) - 1;
		registers(w);
	}
}

void Worker::begin(Warp &w) {
	w.mask = w.live = w.born;
	w.carry = 0;
	w.now = run.serial << stamp::SerialShift | u64(w.index * Lanes) << stamp::ThreadShift;
	w.groups[0] = {0, w.born};
	w.groupCount = 1;
	w.state = Warp::Ready;
	w.copyCount = w.copyGroup = 0;
	w.executed = 0;
	if (code.localBytes) memset(w.localInit, 0, (code.localBytes / 4 + 4) * 4);
	if (!code.tracked.empty()) memset(w.defined, 0, code.tracked.size() * 4);
	for (auto &s : code.specials)
		if (s.name[1] == 'c' || s.name == "%smid") // the same for all lanes, another in each block
			std::fill_n(reinterpret_cast<u32 *>(w.registers + s.at), Lanes, specialOf(s.name, l, run.bid, 0));
}

void Worker::block(u32 index) {
	run.bid[0] = index % l.grid[0];
	run.bid[1] = index / l.grid[0] % l.grid[1];
	run.bid[2] = index / l.grid[0] / l.grid[1];
	run.serial = l.firstSerial + index;
	run.epoch = 0;
	memset(run.arrived, 0, sizeof run.arrived);
	for (u32 k = 0; k < count; k++) begin(warps[k]);
	auto execute = isa().run;
	do
		for (u32 k = 0; k < count; k++)
			if (warps[k].state == Warp::Ready) execute(warps[k]);
	while (release());
}

// stuck says why nobody can go on: a warp waits at a barrier that others do not come to.
void Worker::stuck(Warp &w) {
	const Ins &i = run.ins[w.barrierIns];
	int lane = __builtin_ctz(w.live);
	for (u32 k = 0; k < count; k++) {
		Warp &o = warps[k];
		if (o.state == Warp::Done) fault(w, i, lane, Fault::Barrier, "waits at barrier %u, but warp %u has returned", w.barrier, k);
		if (o.live != o.born) fault(o, run.ins[o.barrierIns], __builtin_ctz(o.live), Fault::Barrier, "waits at barrier %u, but lanes %08x of its warp have returned", o.barrier, o.born & ~o.live);
		const Ins &j = run.ins[o.barrierIns];
		if (o.barrier != w.barrier || o.barrierIns != w.barrierIns) fault(w, i, lane, Fault::Barrier, "waits at barrier %u, but warp %u waits at barrier %u at %s (ptx %u)", w.barrier, k, o.barrier, code.module->at(int(j.loc)).c_str(), j.line);
	}
	fault(w, i, lane, Fault::Barrier, "waits at barrier %u for %u threads, which do not come", w.barrier, w.barrierCount);
}

// release lets go on whoever waits at a barrier that is complete: the whole block's, at
// one instruction, or one of so many threads. It returns whether there is more to do.
bool Worker::release() {
	bool waiting = false, released = false;
	for (u32 k = 0; k < count; k++) {
		Warp &w = warps[k];
		if (w.state == Warp::Ready) return true;
		if (w.state != Warp::AtBarrier) continue;
		waiting = true;
		u32 id = w.barrier, threads = w.barrierCount;
		bool complete = true;
		u32 there = threads ? run.arrived[id] : 0;
		for (u32 n = 0; n < count; n++) {
			Warp &o = warps[n];
			if (o.state == Warp::AtBarrier && o.barrier == id && o.barrierCount == threads) there += Lanes;
			if (!threads && (o.state != Warp::AtBarrier || o.barrier != id || o.barrierIns != w.barrierIns || o.live != o.born)) complete = false;
		}
		if (threads ? there != threads : !complete) continue;
		run.arrived[id] = 0;
		if (run.epoch < 1023) run.epoch++;
		for (u32 n = 0; n < count; n++) {
			Warp &o = warps[n];
			o.now = (o.now & ~stamp::BarrierEpoch) | u64(run.epoch) << stamp::BarrierShift;
			if (o.state == Warp::AtBarrier && o.barrier == id && o.barrierCount == threads) o.state = Warp::Ready;
		}
		released = true;
	}
	if (waiting && !released)
		for (u32 k = 0; k < count; k++)
			if (warps[k].state == Warp::AtBarrier) stuck(warps[k]);
	return waiting;
}

struct Grid {
	Launch &l;
	explicit Grid(Launch &l) : l(l) {}
	std::atomic<u32> next{0}, failed{~u32(0)};
	std::mutex lock;
	Broken broken{};
	void fail(u32 block, const Broken &b) {
		std::lock_guard<std::mutex> g(lock);
		if (block >= failed) return;
		failed = block;
		broken = b;
	}
};

// Blocks are taken in ascending order, and those before a failed one end: so the finding
// is of the first block that has one.
void work(void *arg) {
	Grid &g = *static_cast<Grid *>(arg);
	static thread_local Scratch scratch;
	u32 total = g.l.blocks(), b = g.next++;
	if (b >= total) return;
	try {
		Worker w(g.l, scratch);
		for (; b < total && b < g.failed; b = g.next++) w.block(b);
	} catch (Broken &x) {
		g.fail(b, x);
	} catch (Scarce &x) {
		g.fail(b, {Fault::HostMemory, std::string(className(Fault::HostMemory)) + " kernel=" + g.l.code->name + " device=" + std::to_string(g.l.device->index) + ": the host does not give " + std::to_string(x.bytes) + " bytes for what a block needs"});
	}
}

} // namespace

int execute(Launch &l) {
	l.firstSerial = l.device->take(l.blocks(), l.queued, "kernel " + l.code->name, l.hazard);
	Grid g(l);
	onThreads(int(std::min(l.blocks(), u32(256))), work, &g);
	if (g.failed == ~u32(0)) return 0;
	addFinding(g.broken.finding);
	return errorOf(g.broken.fault);
}
