#include "decode.hpp"
#include "parse.hpp"
#include <algorithm>

using ptx::Operand;
using ptx::Space;
using ptx::Type;

namespace {

constexpr u32 ParamMost = 32764;  // bytes, as PTX has it
constexpr int FramesMost = 10000; // calls, each of which is put where it stands

} // namespace

void Decoder::fail(const std::string &what) const { throw ptx::Error{st ? st->line : 0, what}; }

void Decoder::unsupported(const std::string &why) const {
	fail("unsupported instruction " + st->text() + (why.empty() ? "" : ": " + why));
}

// run decodes an entry. Between variables of shared and local memory are gaps, so that
// what runs past the end of one does not land in the next.
void Decoder::run(const ptx::Function &entry) {
	code.name = entry.name;
	code.module = &module;
	code.maxThreads = entry.maxThreads;
	code.frame = 64; // offset 0 means none
	for (auto *p : entry.params) {
		code.paramBytes = (code.paramBytes + p->align - 1) / p->align * p->align;
		paramAt[p] = code.paramBytes;
		code.params.push_back({code.paramBytes, u32(p->size), p->align});
		if (p->size > ParamMost - std::min(code.paramBytes, ParamMost)) throw ptx::Error{entry.line, "more than " + std::to_string(ParamMost) + " bytes of parameters"};
		code.paramBytes += u32(p->size);
	}
	Frame f{&entry, {}, {}, {}, nullptr, frames++};
	function(f);
	u32 end = code.shared.empty() ? 0 : code.shared.back().at + code.shared.back().size + 32;
	code.sharedDynamic = (end + 127) / 128 * 128;
	for (auto &d : dynamicAt)
		for (auto &c : code.constants)
			if (c.at == d.second) c.value = code.sharedDynamic;
	split();
	trackRegisters(code);
}

void Decoder::function(Frame &f) {
	Frame *before = frame;
	frame = &f;
	for (Type t : f.fn->registers) f.registers.push_back(allocate(t == Type::Pred ? 0 : ptx::bytes(t)));
	std::map<int, std::vector<std::string>> at;
	for (auto &l : f.fn->labels) at[l.second].push_back(l.first);
	for (size_t k = 0; k <= f.fn->body.size(); k++) {
		for (auto &l : at[int(k)]) labels[label(l)] = u32(code.ins.size());
		if (k == f.fn->body.size()) break;
		st = &f.fn->body[k];
		statement(*st);
	}
	labels[label("end")] = u32(code.ins.size());
	if (!before) emit(begin(Op::Exit)); // who runs past the end returns
	frame = before;
}

void Decoder::jump(Ins i, const std::string &l) {
	jumps.push_back({code.ins.size(), label(l)});
	emit(i);
}

void Decoder::statement(const ptx::Statement &s) {
	const std::string &op = s.op[0];
	if (op == "bra") {
		allow(1, "uni");
		jump(begin(Op::Bra), s.args[0].name);
	} else if (op == "ret" || op == "exit") {
		allow(1, "uni");
		// A function that was called goes on behind the call.
		if (op == "ret" && frame->caller) jump(begin(Op::Bra), "end");
		else emit(begin(Op::Exit));
	} else if (op == "trap") {
		emit(begin(Op::Trap));
	} else if (op == "call") {
		call();
	} else if (!simple()) {
		special();
	}
}

// call puts the statements of a function where it is called: (results), name, (arguments).
void Decoder::call() {
	allow(1, "uni");
	if (st->guard >= 0) unsupported("with a guard");
	const ptx::Statement &s = *st;
	size_t k = 0;
	static const std::vector<Operand> none;
	const auto *results = &none, *arguments = &none;
	if (s.args.size() && s.args[0].kind == Operand::Vector) results = &s.args[k++].parts;
	if (k >= s.args.size() || s.args[k].kind != Operand::Name) unsupported("of a function that is not known");
	const ptx::Function *callee = module.function(s.args[k].name);
	if (!callee || callee->entry) fail("call of " + s.args[k].name + ", which is not defined here");
	if (k + 1 < s.args.size()) arguments = &s.args[k + 1].parts;
	int depth = 0;
	for (Frame *f = frame; f; f = f->caller, depth++)
		if (f->fn == callee) unsupported("recursion");
	if (depth > ptx::MostDepth || frames > FramesMost) unsupported("in too many others");
	if (results->size() != callee->results.size() || arguments->size() != callee->params.size()) fail("call of " + callee->name + " with other parameters than it has");
	Frame f{callee, {}, {}, {}, frame, frames++};
	auto bind = [&](const std::vector<Operand> &ops, const std::vector<ptx::Variable *> &to) {
		for (size_t i = 0; i < ops.size(); i++) {
			if (ops[i].kind != Operand::Name || !ops[i].var || ops[i].var->size != to[i]->size) fail("parameter " + to[i]->name + " of " + callee->name);
			f.bound[to[i]] = localAt(ops[i].var);
		}
	};
	bind(*results, callee->results);
	bind(*arguments, callee->params);
	function(f);
	st = &s;
}

// guardByJump leaves out an instruction of a warp or block by a jump, so that only those
// who execute it come to it.
void Decoder::guardByJump(const ptx::Statement &s) {
	if (s.guard < 0) return;
	Ins j = begin(Op::Bra);
	j.flags ^= Negated;
	std::string l = "after " + std::to_string(code.ins.size());
	jump(j, l);
	labels[label(l)] = u32(code.ins.size()) + 1;
}

// split finds the basic blocks. Where threads meet is one of its own: who comes to it may
// have to wait for others.
void Decoder::split() {
	std::vector<bool> starts(code.ins.size() + 1);
	starts[0] = true;
	for (auto &j : jumps) {
		auto it = labels.find(j.label);
		if (it == labels.end()) throw ptx::Error{int(code.ins[j.ins].line), "label " + j.label};
		code.ins[j.ins].imm = it->second;
		starts[it->second] = true;
	}
	for (size_t i = 0; i < code.ins.size(); i++) {
		if (code.ins[i].op >= Op::Bra) starts[i + 1] = true;
		if (code.ins[i].meets()) starts[i] = starts[i + 1] = true;
	}
	std::vector<u32> blockOf(code.ins.size() + 1);
	for (u32 i = 0; i < code.ins.size();) {
		Block b;
		b.first = b.last = i;
		b.meets = code.ins[i].meets();
		do {
			blockOf[i] = u32(code.blocks.size());
			if (code.ins[i].op >= Op::Bra && !code.ins[i].collective()) b.ends = true;
			else b.last++;
			i++;
		} while (!starts[i]);
		code.blocks.push_back(b);
	}
	for (auto &b : code.blocks)
		if (b.ends && code.ins[b.last].op == Op::Bra) b.target = blockOf[size_t(code.ins[b.last].imm)];
}

u32 Decoder::allocate(int width) {
	// Predicates are one word each, sixteen of them a line.
	static_assert(Lanes == 32, "a predicate is a bit for each lane of a u32");
	u32 at = code.frame;
	if (width) {
		at = (at + 63) / 64 * 64;
		code.frame = at + u32(width) * Lanes;
	} else {
		code.frame = at + 4;
	}
	if (code.frame > 64 << 20) fail("more registers than fit 64 MiB a warp");
	return at;
}

u32 Decoder::constant(u64 value, int width, bool pred) {
	if (!pred && width < 8) value &= (u64(1) << 8 * width) - 1;
	auto key = std::make_pair(value, pred ? 0 : width);
	auto it = constantAt.find(key);
	if (it != constantAt.end()) return it->second;
	u32 at = allocate(pred ? 0 : width);
	code.constants.push_back({at, u32(width), pred, value});
	return constantAt[key] = at;
}

u32 Decoder::special(const std::string &name) {
	static const char *known[] = {"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z",
		"%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%smid", "%nsmid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge"};
	auto it = specialAt.find(name);
	if (it != specialAt.end()) return it->second;
	if (std::find(std::begin(known), std::end(known), name) == std::end(known)) fail("unsupported register " + name);
	u32 at = allocate(4);
	code.specials.push_back({at, name});
	return specialAt[name] = at;
}

// localAt is where a variable of local memory lies, or a parameter of a call, which is
// one too.
u32 Decoder::localAt(const ptx::Variable *v) {
	for (Frame *f = frame; f; f = f->caller) {
		auto b = f->bound.find(v);
		if (b != f->bound.end()) return b->second;
		auto l = f->local.find(v);
		if (l != f->local.end()) return l->second;
		bool own = std::any_of(f->fn->variables.begin(), f->fn->variables.end(), [&](auto &o) { return o.get() == v; });
		if (!own) continue;
		u32 align = std::max(v->align, u32(16)), at = (code.localBytes + align - 1) / align * align;
		if (v->size > LocalMost - std::min(at, LocalMost)) fail("more local memory than 512 KiB a thread");
		code.local.push_back({at, u32(v->size), v->name});
		code.localBytes = at + u32(v->size) + 16;
		return f->local[v] = at;
	}
	fail("variable " + v->name + " is not of this function");
}

// variable is a register that holds where a variable begins, in its own space.
u32 Decoder::variable(const ptx::Variable *v, Space space, int width) {
	if (space != Space::Generic && space != v->space) fail("variable " + v->name + " is not of this space");
	switch (v->space) {
	case Space::Shared: {
		if (v->dynamic) {
			// Where it begins is known when all other variables are.
			u32 &at = dynamicAt[width];
			if (!at) {
				at = allocate(width);
				code.constants.push_back({at, u32(width), false, 0});
			}
			return at;
		}
		auto it = sharedAt.find(v);
		if (it == sharedAt.end()) {
			u32 end = code.shared.empty() ? 0 : code.shared.back().at + code.shared.back().size + 32;
			u32 align = std::max(v->align, u32(16)), at = (end + align - 1) / align * align;
			if (v->size > SharedMost || code.sharedStatic + v->size > SharedMost) fail("shared variable " + v->name + " is larger than what is left of " + std::to_string(SharedMost) + " bytes");
			code.shared.push_back({at, u32(v->size), v->name});
			code.sharedStatic = (code.sharedStatic + v->align - 1) / v->align * v->align + u32(v->size);
			it = sharedAt.emplace(v, at).first;
		}
		return constant(it->second, width);
	}
	case Space::Local: return constant(localAt(v), width);
	case Space::Param: {
		auto p = paramAt.find(v);
		if (p != paramAt.end()) return constant(p->second, width);
		return constant(localAt(v), width);
	}
	default: {
		auto g = address.find(v);
		if (g == address.end()) fail("variable " + v->name + " has no address");
		return constant(g->second, width);
	}
	}
}

int Decoder::widthOf(const Operand &o) const {
	if (o.kind != Operand::Register) return 0;
	Type t = frame->fn->registers[size_t(o.reg)];
	return t == Type::Pred ? 0 : ptx::bytes(t);
}

// source is the register of an operand that an instruction of a type reads.
u32 Decoder::source(const Operand &o, Type t) {
	if (t == Type::Pred) return predicate(o, false);
	int width = ptx::bytes(t);
	switch (o.kind) {
	case Operand::Register:
		if (frame->fn->registers[size_t(o.reg)] == Type::Pred || widthOf(o) != width) fail("register " + o.name + " has another size than " + st->text() + " reads");
		return frame->registers[size_t(o.reg)];
	case Operand::Immediate:
		if (o.real && !(isFloat(t) || t == Type::B32 || t == Type::B64)) fail("a float where there must be an integer");
		if (!o.real && isFloat(t)) fail("an integer where there must be a float");
		return constant(o.value, width);
	case Operand::Special:
		if (width != 4) fail("register " + o.name + " has 32 bits");
		return special(o.name);
	case Operand::Name:
		if (!o.var || width < 4 || (width == 4 && o.var->space != Space::Shared && o.var->space != Space::Local && o.var->space != Space::Param)) fail("operand " + o.name);
		if (o.value) fail("sum with the address of " + o.name);
		return variable(o.var, Space::Generic, width);
	default: fail("an operand that " + st->text() + " does not take");
	}
}

u32 Decoder::destination(const Operand &o, Type t) {
	if (t == Type::Pred) return predicate(o, true);
	if (o.kind != Operand::Register || widthOf(o) != ptx::bytes(t)) fail("the result of " + st->text() + " has another size than its register");
	return frame->registers[size_t(o.reg)];
}

u32 Decoder::predicate(const Operand &o, bool dest) {
	if (o.kind == Operand::Immediate && !dest) return constant(o.value ? ~u32(0) : 0, 4, true);
	if (o.kind != Operand::Register || frame->fn->registers[size_t(o.reg)] != Type::Pred) fail("operand " + o.name + " is no predicate");
	return frame->registers[size_t(o.reg)];
}

std::unique_ptr<Code> decode(const ptx::Module &m, const ptx::Function &entry, const std::map<const ptx::Variable *, u64> &address) {
	auto c = std::make_unique<Code>();
	Decoder(m, address, *c).run(entry);
	return c;
}
