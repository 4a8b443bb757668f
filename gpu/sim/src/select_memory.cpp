// Instructions that touch memory, and those by which threads meet.
#include "decode.hpp"
#include <algorithm>

using ptx::Operand;
using ptx::Space;
using ptx::Type;

namespace {

const char *const scopes = "global shared shared::cta local const param weak volatile relaxed acquire release acq_rel cta gpu sys";
const char *const caches = "nc ca cg cs lu cv wb wt L1::evict_last L1::evict_first L1::evict_normal L1::no_allocate L2::64B L2::128B L2::256B";
const char *const types = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 v2 v4";

} // namespace

// place reads an address: a register or a variable, and what is added.
void Decoder::place(Ins &i, const Operand &o) {
	if (o.kind != Operand::Address) fail(st->text() + " without an address");
	const Operand &base = o.parts[0];
	i.imm = s64(o.value) + (base.kind == Operand::Name ? s64(base.value) : 0);
	i.sub2 = 8; // the width of the base
	if (base.kind == Operand::Register) {
		i.sub2 = u8(widthOf(base));
		if (i.sub2 != 8 && !(i.sub2 == 4 && (i.space == Space::Shared || i.space == Space::Local || i.space == Space::Param))) fail("address register " + base.name + " has not 64 bits");
		i.r[i.writes + i.reads++] = frame->registers[size_t(base.reg)];
	} else if (base.kind == Operand::Name && base.var) {
		i.r[i.writes + i.reads++] = variable(base.var, i.space, 8);
	} else if (base.kind == Operand::Immediate) {
		i.r[i.writes + i.reads++] = constant(base.value, 8);
	} else {
		fail("address " + base.name);
	}
}

void Decoder::memory(bool store) {
	std::string allowed = std::string(scopes) + " " + caches + " " + types;
	allow(1, allowed.c_str());
	count(2, 2);
	Ins i = begin(store ? Op::St : Op::Ld);
	i.type = typeAt(0);
	i.space = has("global") ? Space::Global : has("shared") || has("shared::cta") ? Space::Shared : has("local") ? Space::Local : has("param") ? Space::Param : has("const") ? Space::Const : Space::Generic;
	if (has("volatile") || has("relaxed") || has("acquire") || has("release")) i.flags |= Strong;
	if (store && i.space == Space::Const) unsupported("of a constant");
	const Operand &data = st->args[store ? 1 : 0], &where = st->args[store ? 0 : 1];
	std::vector<Operand> elements = {data};
	if (data.kind == Operand::Vector) elements = data.parts;
	i.n = u8(std::min(elements.size(), size_t(255)));
	if (i.n != (has("v4") ? 4 : has("v2") ? 2 : 1) || i.n * ptx::bytes(i.type) > 16) fail(st->text() + " of a vector of another length");
	// A parameter of the kernel is a constant of the launch; one of a call lies in local
	// memory.
	if (i.space == Space::Param) {
		const Operand &base = where.kind == Operand::Address ? where.parts[0] : where;
		bool ofKernel = base.kind == Operand::Register ? !frame->caller : paramAt.count(base.var) > 0;
		if (!ofKernel) i.space = Space::Local;
		else if (store) unsupported("to a parameter");
		else i.op = Op::LdParam;
		if (!ofKernel && base.kind == Operand::Register) unsupported("of an indexed parameter");
	}
	auto widthFor = [&](const Operand &o) {
		int w = widthOf(o);
		if (o.kind == Operand::Register && w >= ptx::bytes(i.type) && (!isFloat(i.type) || w == ptx::bytes(i.type))) return w;
		if (store && o.kind != Operand::Register && o.kind != Operand::Sink) return std::max(2, ptx::bytes(i.type));
		fail("a register of another size than " + st->text() + " moves");
	};
	i.width = u8(widthFor(elements[0]));
	auto add = [&](const Operand &o) {
		if (widthFor(o) != i.width) fail("registers of several sizes");
		static const Type byWidth[] = {Type::None, Type::None, Type::B16, Type::None, Type::B32, Type::None, Type::None, Type::None, Type::B64};
		Type t = o.kind == Operand::Register ? byWidth[i.width] : i.width == 2 ? Type::B16 : i.type;
		i.r[i.writes + i.reads] = o.kind == Operand::Register ? frame->registers[size_t(o.reg)] : source(o, t);
	};
	if (!store) for (auto &o : elements) add(o), i.writes++;
	if (i.space == Space::Local && where.kind == Operand::Address && where.parts[0].var && where.parts[0].var->space == Space::Param) {
		i.imm = s64(where.value);
		i.sub2 = 8;
		i.r[i.writes + i.reads++] = constant(localAt(where.parts[0].var), 8);
	} else {
		place(i, where);
	}
	// Where a parameter lies is known, unless it is indexed.
	if (i.op == Op::LdParam && where.parts[0].var) {
		i.imm += paramAt.at(where.parts[0].var);
		i.reads = 0;
	}
	if (store) for (auto &o : elements) add(o), i.reads++;
	emit(i);
}

void Decoder::atomic(bool reduce) {
	static const std::map<std::string, std::pair<AtomOp, const char *>> ops = {
		{"add", {AtomOp::Add, "u32 s32 u64"}}, {"min", {AtomOp::Min, "u32 s32 u64 s64"}}, {"max", {AtomOp::Max, "u32 s32 u64 s64"}}, {"exch", {AtomOp::Exch, "b32 b64"}},
		{"cas", {AtomOp::Cas, "b32 b64"}}, {"and", {AtomOp::And, "b32 b64"}}, {"or", {AtomOp::Or, "b32 b64"}}, {"xor", {AtomOp::Xor, "b32 b64"}},
		{"inc", {AtomOp::Inc, "u32"}}, {"dec", {AtomOp::Dec, "u32"}}};
	if (st->op.size() < 3) unsupported();
	auto it = ops.find(st->op[st->op.size() - 2]);
	if (it == ops.end()) unsupported();
	if (isFloat(typeAt(0))) unsupported("the order in which floats are added would not be defined");
	std::string allowed = std::string(scopes) + " " + it->first + " " + it->second.second;
	allow(1, allowed.c_str());
	if (has("const") || has("param") || has("local")) unsupported();
	Ins i = begin(Op::Atom);
	i.type = typeAt(0);
	i.width = u8(ptx::bytes(i.type));
	i.sub = u8(it->second.first);
	i.space = has("global") ? Space::Global : has("shared") || has("shared::cta") ? Space::Shared : Space::Generic;
	size_t k = reduce ? 0 : 1, operands = it->second.first == AtomOp::Cas ? 2 : 1;
	count(k + 1 + operands, k + 1 + operands);
	if (!reduce && st->args[0].kind != Operand::Sink) i.r[i.writes++] = destination(st->args[0], i.type);
	place(i, st->args[k]);
	for (size_t n = 1; n <= operands; n++) i.r[i.writes + i.reads++] = source(st->args[k + n], i.type);
	emit(i);
}

// async reads cp.async: its kinds that barriers in memory finish are not done here.
void Decoder::async() {
	if (!has("async") || has("bulk") || has("mbarrier")) unsupported();
	if (has("commit_group")) {
		emit(begin(Op::CpCommit));
	} else if (has("wait_group") || has("wait_all")) {
		Ins i = begin(Op::CpWait);
		if (has("wait_group")) {
			count(1, 1);
			if (st->args[0].kind != Operand::Immediate || st->args[0].value > 1 << 16) unsupported("its count");
			i.imm = s64(st->args[0].value);
		} else {
			i.imm = -1; // of what was not committed, too
		}
		emit(i);
	} else {
		allow(1, "async ca cg shared shared::cta global L2::64B L2::128B L2::256B");
		count(3, 4);
		Ins i = begin(Op::CpAsync);
		i.type = Type::B8;
		i.space = Space::Shared;
		place(i, st->args[0]);
		s64 to = i.imm;
		u8 width = i.sub2;
		i.space = Space::Global;
		place(i, st->args[1]);
		i.sub2 = width;
		if (to < -32768 || to > 32767 || i.imm < -(1 << 30) || i.imm > 1 << 30) unsupported("its offset");
		// Both offsets in one: the source's above the target's 16 bits.
		i.imm = i.imm * 65536 + (to & 0xffff);
		if (st->args[2].kind != Operand::Immediate || st->args[2].value > 16) unsupported("its size");
		i.n = u8(st->args[2].value);
		if (i.n != 16 && !(has("ca") && (i.n == 4 || i.n == 8))) unsupported("its size");
		if (st->args.size() == 4) i.r[i.writes + i.reads++] = source(st->args[3], Type::U32);
		emit(i);
	}
}

void Decoder::shuffle() {
	static const std::map<std::string, ShflMode> modes = {{"up", ShflMode::Up}, {"down", ShflMode::Down}, {"bfly", ShflMode::Bfly}, {"idx", ShflMode::Idx}};
	allow(1, "sync up down bfly idx b32");
	count(5, 5);
	if (!has("sync") || st->op.size() != 4 || !modes.count(st->op[2])) unsupported();
	guardByJump(*st);
	Ins i = begin(Op::Shfl);
	i.guard = 0;
	i.type = Type::B32;
	i.width = 4;
	i.sub = u8(modes.at(st->op[2]));
	const Operand &d = st->args[0];
	if (d.kind == Operand::Vector) {
		if (d.parts.size() != 2) unsupported("its results");
		i.r[i.writes++] = d.parts[0].kind == Operand::Sink ? allocate(4) : destination(d.parts[0], i.type);
		i.r[i.writes++] = predicate(d.parts[1], true);
	} else {
		i.r[i.writes++] = destination(d, i.type);
	}
	for (size_t k = 1; k <= 4; k++) i.r[i.writes + i.reads++] = source(st->args[k], Type::B32);
	emit(i);
}

// vote reads vote, match and redux: what one lane gives, and the mask of who takes part.
void Decoder::vote() {
	count(3, 3);
	if (!has("sync")) unsupported("without .sync");
	guardByJump(*st);
	Ins i = begin(Op::Vote);
	i.guard = 0;
	i.width = 4;
	i.type = typeAt(0);
	const Operand &d = st->args[0], &a = st->args[1];
	if (st->op[0] == "vote") {
		allow(1, "sync all any uni ballot pred b32");
		i.sub = u8(has("all") ? VoteMode::All : has("any") ? VoteMode::Any : has("uni") ? VoteMode::Uni : VoteMode::Ballot);
		if (has("ballot") != (i.type == Type::B32)) unsupported();
		if (a.negated) i.flags |= NegatedC;
		i.r[i.writes++] = destination(d, i.type);
		i.r[i.writes + i.reads++] = predicate(a, false);
	} else if (st->op[0] == "match") {
		allow(1, "sync all any b32 b64");
		i.op = Op::Match;
		i.sub = u8(has("all") ? VoteMode::All : VoteMode::Any);
		bool pair = d.kind == Operand::Vector;
		if (pair && (!has("all") || d.parts.size() != 2)) unsupported();
		i.r[i.writes++] = destination(pair ? d.parts[0] : d, Type::B32);
		if (pair) i.r[i.writes++] = predicate(d.parts[1], true);
		i.r[i.writes + i.reads++] = source(a, i.type);
	} else {
		static const std::map<std::string, AtomOp> ops = {{"add", AtomOp::Add}, {"min", AtomOp::Min}, {"max", AtomOp::Max}, {"and", AtomOp::And}, {"or", AtomOp::Or}, {"xor", AtomOp::Xor}};
		i.op = Op::Redux;
		auto it = st->op.size() == 4 ? ops.find(st->op[2]) : ops.end();
		if (it == ops.end() || ptx::bytes(i.type) != 4 || isFloat(i.type)) unsupported();
		i.sub = u8(it->second);
		i.r[i.writes++] = destination(d, i.type);
		i.r[i.writes + i.reads++] = source(a, i.type);
	}
	i.r[i.writes + i.reads++] = source(st->args[2], Type::B32);
	emit(i);
}

void Decoder::barrier() {
	if (st->op[0] == "membar" || st->op[0] == "fence") {
		allow(1, "cta gl sys gpu sc acq_rel");
		emit(begin(Op::Fence));
		return;
	}
	bool warp = has("warp");
	allow(1, "sync arrive warp cta aligned");
	if (has("sync") == has("arrive") || (warp && !has("sync"))) unsupported();
	guardByJump(*st);
	Ins i = begin(Op::Bar);
	i.guard = 0;
	i.type = Type::U32;
	i.sub = warp ? BarWarp : has("arrive") ? BarArrive : BarSync;
	count(has("arrive") ? 2 : 1, warp ? 1 : 2);
	for (auto &a : st->args) i.r[i.reads++] = source(a, Type::U32);
	emit(i);
}
