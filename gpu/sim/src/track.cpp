#include "code.hpp"
#include <algorithm>
#include <set>

namespace {

using Bits = std::vector<u64>;

// Numbers maps registers, which are offsets, to indices of bits.
std::map<u32, u32> numbers(const Code &c) {
	std::map<u32, u32> n;
	std::set<u32> given;
	for (auto &k : c.constants) given.insert(k.at);
	for (auto &s : c.specials) given.insert(s.at);
	for (auto &i : c.ins) {
		if (i.guard) n.emplace(i.guard, u32(n.size()));
		for (int k = 0; k < i.writes + i.reads; k++)
			if (!given.count(i.r[k])) n.emplace(i.r[k], u32(n.size()));
	}
	return n;
}

struct Sets {
	Bits reads, writes, in; // read before written, always written, alive at the begin
};

} // namespace

// trackRegisters asks which registers are alive where the kernel begins. There are none
// in a kernel that a compiler made, as a rule, and then nothing is checked while it runs.
void trackRegisters(Code &c) {
	auto number = numbers(c);
	size_t words = number.size() / 64 + 1;
	std::vector<Sets> sets(c.blocks.size(), Sets{Bits(words), Bits(words), Bits(words)});
	for (size_t b = 0; b < c.blocks.size(); b++) {
		auto &s = sets[b];
		auto read = [&](u32 r) {
			auto it = number.find(r);
			if (it != number.end() && !(s.writes[it->second / 64] >> it->second % 64 & 1)) s.reads[it->second / 64] |= u64(1) << it->second % 64;
		};
		for (u32 k = c.blocks[b].first; k < c.blocks[b].last + c.blocks[b].ends; k++) {
			auto &i = c.ins[k];
			if (i.guard) read(i.guard);
			for (int r = 0; r < i.reads; r++) read(i.source(r));
			// What is written under a guard is not written for all threads.
			if (!i.guard)
				for (int r = 0; r < i.writes; r++) s.writes[number[i.r[r]] / 64] |= u64(1) << number[i.r[r]] % 64;
		}
		s.in = s.reads;
	}
	for (bool changed = true; changed;) {
		changed = false;
		for (size_t b = c.blocks.size(); b-- > 0;) {
			auto &s = sets[b];
			auto &blk = c.blocks[b];
			const Ins *end = blk.ends ? &c.ins[blk.last] : nullptr;
			bool goesOn = !end || end->guard || end->op == Op::Bar;
			for (size_t w = 0; w < words; w++) {
				u64 out = goesOn && b + 1 < sets.size() ? sets[b + 1].in[w] : 0;
				if (end && end->op == Op::Bra) out |= sets[blk.target].in[w];
				u64 in = s.reads[w] | (out & ~s.writes[w]);
				changed |= in != s.in[w];
				s.in[w] = in;
			}
		}
	}
	for (auto &n : number)
		if (!sets.empty() && sets[0].in[n.second / 64] >> n.second % 64 & 1) c.tracked.emplace(n.first, 0);
	// A register that a tracked one is moved to is as undefined as that.
	for (bool changed = !c.tracked.empty(); changed;) {
		changed = false;
		for (auto &i : c.ins)
			if (i.op == Op::Mov && c.tracked.count(i.source(0))) changed |= c.tracked.emplace(i.r[0], 0).second;
	}
	u32 index = 0;
	for (auto &t : c.tracked) t.second = index++;
	for (auto &i : c.ins) {
		i.tracked = i.guard && c.tracked.count(i.guard);
		for (int k = 0; k < i.writes + i.reads; k++) i.tracked = i.tracked || c.tracked.count(i.r[k]);
	}
}
