// Which instruction is meant: the regular ones by a table, the others by a function each.
#include "decode.hpp"
#include <algorithm>
#include <cstring>

using ptx::Operand;
using ptx::Space;
using ptx::Type;

namespace {

// Rule is a regular instruction. Its shape has a letter for each operand: d is what is
// written and a what is read, of the instruction's type; D and A of twice its width; I and
// i of 32 bits; p a predicate that is read. What is not in mods is refused: an instruction
// that asks for something that is not done here must not be taken for one that is.
struct Rule {
	const char *name;
	Op op;
	const char *shape, *types, *mods;
};

const char *const whole = "u16 s16 u32 s32 u64 s64";
const char *const wide = "u16 s16 u32 s32";
const char *const whole32 = "u32 s32 u64 s64";
const char *const real = "f32 f64";
const char *const bitwise = "b16 b32 b64 pred";
const char *const bits = "b32 b64";

const Rule rules[] = {
	{"add", Op::Add, "daa", whole, ""}, {"sub", Op::Sub, "daa", whole, ""},
	{"add.cc", Op::AddCC, "daa", whole32, ""}, {"addc", Op::AddC, "daa", whole32, ""}, {"addc.cc", Op::AddCCC, "daa", whole32, ""},
	{"sub.cc", Op::SubCC, "daa", whole32, ""}, {"subc", Op::SubC, "daa", whole32, ""}, {"subc.cc", Op::SubCCC, "daa", whole32, ""},
	{"mul.lo", Op::Mul, "daa", whole, ""}, {"mul.hi", Op::MulHi, "daa", whole, ""}, {"mul.wide", Op::MulWide, "Daa", wide, ""},
	{"mad.lo", Op::Mad, "daaa", whole, ""}, {"mad.hi", Op::MadHi, "daaa", whole, ""}, {"mad.wide", Op::MadWide, "DaaA", wide, ""},
	{"div", Op::Div, "daa", whole, ""}, {"rem", Op::Rem, "daa", whole, ""},
	{"min", Op::Min, "daa", whole, ""}, {"max", Op::Max, "daa", whole, ""},
	{"neg", Op::Neg, "da", "s16 s32 s64", ""}, {"abs", Op::Abs, "da", "s16 s32 s64", ""},
	{"and", Op::And, "daa", bitwise, ""}, {"or", Op::Or, "daa", bitwise, ""}, {"xor", Op::Xor, "daa", bitwise, ""},
	{"not", Op::Not, "da", bitwise, ""}, {"cnot", Op::Cnot, "da", "b16 b32 b64", ""},
	{"shl", Op::Shl, "dai", "b16 b32 b64", ""}, {"shr", Op::Shr, "dai", "b16 b32 b64 u16 s16 u32 s32 u64 s64", ""},
	{"shf.l.clamp", Op::ShfL, "daai", "b32", ""}, {"shf.r.clamp", Op::ShfR, "daai", "b32", ""},
	{"shf.l.wrap", Op::ShfL, "daai", "b32", "wrap"}, {"shf.r.wrap", Op::ShfR, "daai", "b32", "wrap"},
	{"bfe", Op::Bfe, "daii", whole32, ""}, {"bfi", Op::Bfi, "daaii", bits, ""},
	{"bfind", Op::Bfind, "Ia", whole32, ""}, {"bfind.shiftamt", Op::Bfind, "Ia", whole32, "wrap"},
	{"brev", Op::Brev, "da", bits, ""}, {"clz", Op::Clz, "Ia", bits, ""}, {"popc", Op::Popc, "Ia", bits, ""},
	{"add", Op::Add, "daa", real, "rn ftz"}, {"sub", Op::Sub, "daa", real, "rn ftz"}, {"mul", Op::Mul, "daa", real, "rn ftz"},
	{"fma.rn", Op::Fma, "daaa", real, "ftz"}, {"div.rn", Op::Div, "daa", real, "ftz"},
	{"sqrt.rn", Op::Sqrt, "da", real, "ftz"}, {"rcp.rn", Op::Rcp, "da", real, "ftz"},
	{"min", Op::Min, "daa", real, "ftz"}, {"max", Op::Max, "daa", real, "ftz"},
	{"neg", Op::Neg, "da", real, "ftz"}, {"abs", Op::Abs, "da", real, "ftz"}, {"copysign", Op::Copysign, "daa", real, ""},
	{"selp", Op::Selp, "daap", "b16 b32 b64 u16 s16 u32 s32 u64 s64 f32 f64", ""},
	{"activemask", Op::Activemask, "d", "b32", ""},
};

// contains looks for a word in a list with spaces.
bool contains(const char *list, const std::string &word) {
	if (word.empty()) return false;
	for (const char *p = list; (p = strstr(p, word.c_str())); p++)
		if ((p == list || p[-1] == ' ') && (p[word.size()] == ' ' || !p[word.size()])) return true;
	return false;
}

// matches says how many parts of an opcode a rule's name takes, 0 if it is another.
size_t matches(const Rule &r, const std::vector<std::string> &op) {
	const char *p = r.name;
	size_t n = 0;
	for (;; n++) {
		if (n >= op.size() || op[n].compare(0, std::string::npos, p, strcspn(p, "."))) return 0;
		p += strcspn(p, ".");
		if (!*p++) break;
	}
	return contains(r.types, op.back()) ? n + 1 : 0;
}

// twice is the type of double width.
Type twice(Type t) {
	switch (t) {
	case Type::U16: return Type::U32;
	case Type::S16: return Type::S32;
	case Type::U32: return Type::U64;
	default: return Type::S64;
	}
}

} // namespace

Ins Decoder::begin(Op op) const {
	Ins i;
	i.op = op;
	i.line = u32(st->line);
	i.loc = u32(st->loc);
	if (st->guard >= 0) {
		i.guard = frame->registers[size_t(st->guard)];
		if (st->guardNegated) i.flags |= Negated;
	}
	return i;
}

void Decoder::emit(Ins i) {
	if (code.ins.size() > 1 << 20) fail("more than a million instructions");
	code.ins.push_back(i);
}

bool Decoder::has(const char *mod) const { return std::find(st->op.begin() + 1, st->op.end(), mod) != st->op.end(); }

// allow refuses what is not in mods, from a part of the opcode on.
void Decoder::allow(size_t from, const char *mods) const {
	for (size_t i = from; i < st->op.size(); i++)
		if (!contains(mods, st->op[i])) unsupported("." + st->op[i]);
}

void Decoder::count(size_t least, size_t most) const {
	if (st->args.size() < least || st->args.size() > most) fail(st->text() + " with " + std::to_string(st->args.size()) + " operands");
}

Type Decoder::typeAt(size_t fromEnd) const {
	Type t = fromEnd < st->op.size() ? ptx::typeNamed(st->op[st->op.size() - 1 - fromEnd]) : Type::None;
	if (t == Type::None) unsupported("its type");
	return t;
}

bool Decoder::simple() {
	const Rule *rule = nullptr;
	size_t best = 0;
	for (auto &r : rules) {
		size_t n = matches(r, st->op);
		if (n > best) rule = &r, best = n;
	}
	if (!rule) return false;
	count(strlen(rule->shape), strlen(rule->shape));
	Ins i = begin(rule->op);
	i.type = typeAt(0);
	i.width = u8(ptx::bytes(i.type));
	for (size_t k = best; k + 1 < st->op.size(); k++) {
		if (!contains(rule->mods, st->op[k])) unsupported("." + st->op[k]);
		if (st->op[k] == "ftz") i.flags |= Ftz;
	}
	if (!strcmp(rule->mods, "wrap")) i.flags |= Wrap;
	for (size_t k = 0; rule->shape[k]; k++) {
		const Operand &o = st->args[k];
		switch (rule->shape[k]) {
		case 'd': i.r[i.writes++] = destination(o, i.type); break;
		case 'D': i.r[i.writes++] = destination(o, twice(i.type)); break;
		case 'I': i.r[i.writes++] = destination(o, Type::U32); break;
		case 'a': i.r[i.writes + i.reads++] = source(o, i.type); break;
		case 'A': i.r[i.writes + i.reads++] = source(o, twice(i.type)); break;
		case 'i': i.r[i.writes + i.reads++] = source(o, Type::U32); break;
		case 'p': i.r[i.writes + i.reads++] = predicate(o, false); break;
		}
	}
	emit(i);
	return true;
}

void Decoder::special() {
	static const std::map<std::string, void (*)(Decoder &)> by = {
		{"mov", [](Decoder &d) { d.move(); }}, {"ld", [](Decoder &d) { d.memory(false); }}, {"ldu", [](Decoder &d) { d.memory(false); }},
		{"st", [](Decoder &d) { d.memory(true); }}, {"atom", [](Decoder &d) { d.atomic(false); }}, {"red", [](Decoder &d) { d.atomic(true); }},
		{"cp", [](Decoder &d) { d.async(); }}, {"cvt", [](Decoder &d) { d.convert(); }}, {"cvta", [](Decoder &d) { d.convertAddress(); }},
		{"isspacep", [](Decoder &d) { d.convertAddress(); }}, {"setp", [](Decoder &d) { d.compare(); }},
		{"prmt", [](Decoder &d) { d.permute(); }}, {"lop3", [](Decoder &d) { d.permute(); }},
		{"shfl", [](Decoder &d) { d.shuffle(); }}, {"vote", [](Decoder &d) { d.vote(); }}, {"match", [](Decoder &d) { d.vote(); }},
		{"redux", [](Decoder &d) { d.vote(); }}, {"bar", [](Decoder &d) { d.barrier(); }}, {"barrier", [](Decoder &d) { d.barrier(); }},
		{"membar", [](Decoder &d) { d.barrier(); }}, {"fence", [](Decoder &d) { d.barrier(); }}};
	auto it = by.find(st->op[0]);
	if (it == by.end()) unsupported();
	it->second(*this);
}

void Decoder::move() {
	allow(1, "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 pred");
	count(2, 2);
	Ins i = begin(Op::Mov);
	i.type = typeAt(0);
	i.width = u8(ptx::bytes(i.type));
	const Operand &d = st->args[0], &s = st->args[1];
	static const Type parts[] = {Type::None, Type::B8, Type::B16, Type::None, Type::B32};
	auto part = [&](const Operand &v) {
		i.n = u8(v.parts.size());
		Type t = v.parts.size() == 2 || v.parts.size() == 4 ? parts[i.width / i.n] : Type::None;
		if (t == Type::None || t == Type::B8) unsupported("of parts of this size");
		return t;
	};
	if (d.kind == Operand::Vector) {
		i.op = Op::Unpack;
		Type t = part(d);
		u32 trash = 0;
		for (auto &p : d.parts) {
			if (p.kind == Operand::Sink && !trash) trash = allocate(ptx::bytes(t));
			i.r[i.writes++] = p.kind == Operand::Sink ? trash : destination(p, t);
		}
		i.r[i.writes + i.reads++] = source(s, i.type);
	} else if (s.kind == Operand::Vector) {
		i.op = Op::Pack;
		Type t = part(s);
		i.r[i.writes++] = destination(d, i.type);
		for (auto &p : s.parts) i.r[i.writes + i.reads++] = source(p, t);
	} else {
		i.r[i.writes++] = destination(d, i.type);
		i.r[i.writes + i.reads++] = source(s, i.type);
	}
	emit(i);
}

// A float is converted to and from integers and floats; an integer may be narrower than
// the register that holds it.
void Decoder::convert() {
	static const std::map<std::string, Round> rounds = {
		{"rn", Round::Near}, {"rni", Round::Near}, {"rz", Round::Zero}, {"rzi", Round::Zero}, {"rm", Round::Down}, {"rmi", Round::Down}, {"rp", Round::Up}, {"rpi", Round::Up}};
	count(2, 2);
	Ins i = begin(Op::Cvt);
	i.type = typeAt(1);
	i.type2 = typeAt(0);
	if (i.type == Type::B8 || i.type2 == Type::B8 || (i.type >= Type::B8 && i.type <= Type::B64) || (i.type2 >= Type::B8 && i.type2 <= Type::B64)) unsupported("of bits");
	bool rounded = false, integral = false;
	for (size_t k = 1; k + 2 < st->op.size(); k++) {
		auto r = rounds.find(st->op[k]);
		if (r != rounds.end()) {
			rounded = true;
			integral = st->op[k].size() == 3;
			i.sub = u8(r->second);
		} else if (st->op[k] == "ftz") {
			i.flags |= Ftz;
		} else if (st->op[k] == "sat") {
			i.flags |= Sat;
		} else {
			unsupported("." + st->op[k]);
		}
	}
	bool toFloat = isFloat(i.type), fromFloat = isFloat(i.type2);
	if (fromFloat && !toFloat && !integral) unsupported("without a rounding to integers");
	if (!fromFloat && !toFloat && rounded) unsupported("with a rounding");
	if (toFloat && !integral && (i.sub != u8(Round::Near) || (!rounded && (!fromFloat || ptx::bytes(i.type) < ptx::bytes(i.type2))))) unsupported("its rounding");
	if (integral && toFloat) {
		if (!fromFloat || i.type != i.type2) unsupported("its rounding");
		i.flags |= Integral;
	}
	if ((i.flags & Sat) && toFloat && i.type != Type::F32) unsupported(".sat");
	const Operand &d = st->args[0], &s = st->args[1];
	i.width = u8(widthOf(d));
	if (d.kind != Operand::Register || !i.width || i.width < ptx::bytes(i.type) || (toFloat && i.width != ptx::bytes(i.type))) fail("the result of " + st->text() + " has another size than its register");
	i.r[i.writes++] = frame->registers[size_t(d.reg)];
	if (s.kind == Operand::Register) {
		i.sub2 = u8(widthOf(s));
		if (!i.sub2 || i.sub2 < ptx::bytes(i.type2) || (fromFloat && i.sub2 != ptx::bytes(i.type2))) fail("register " + s.name + " has another size than " + st->text() + " reads");
		i.r[i.writes + i.reads++] = frame->registers[size_t(s.reg)];
	} else {
		i.sub2 = u8(std::max(2, ptx::bytes(i.type2)));
		i.r[i.writes + i.reads++] = source(s, i.sub2 == 2 ? Type::B16 : i.type2);
	}
	emit(i);
}

void Decoder::convertAddress() {
	bool test = st->op[0] == "isspacep", to = has("to");
	allow(1, test ? "global shared local const" : "to global shared local const u64 u32");
	count(2, 2);
	Ins i = begin(Op::Mov);
	i.type = test ? Type::U64 : typeAt(0);
	if (i.type != Type::U64) unsupported("of 32 bits");
	i.width = 8;
	i.space = has("shared") ? Space::Shared : has("local") ? Space::Local : Space::Global;
	if (test) i.op = Op::IsSpace;
	else if (i.space == Space::Shared) i.op = to ? Op::ToShared : Op::FromShared;
	else if (i.space == Space::Local) i.op = to ? Op::ToLocal : Op::FromLocal;
	i.r[i.writes++] = destination(st->args[0], test ? Type::Pred : i.type);
	i.r[i.writes + i.reads++] = source(st->args[1], i.type);
	emit(i);
}

// compare reads setp.lt.f32 p, a, b and setp.lt.and.f32 p|q, a, b, c.
void Decoder::compare() {
	static const std::map<std::string, Cmp> named = {
		{"eq", Cmp::Eq}, {"ne", Cmp::Ne}, {"lt", Cmp::Lt}, {"le", Cmp::Le}, {"gt", Cmp::Gt}, {"ge", Cmp::Ge}, {"lo", Cmp::Lt}, {"ls", Cmp::Le}, {"hi", Cmp::Gt}, {"hs", Cmp::Ge},
		{"equ", Cmp::Equ}, {"neu", Cmp::Neu}, {"ltu", Cmp::Ltu}, {"leu", Cmp::Leu}, {"gtu", Cmp::Gtu}, {"geu", Cmp::Geu}, {"num", Cmp::Num}, {"nan", Cmp::Nan}};
	Ins i = begin(Op::Setp);
	i.type = typeAt(0);
	i.width = u8(ptx::bytes(i.type));
	auto c = named.find(st->op.size() > 1 ? st->op[1] : "");
	if (c == named.end() || i.type == Type::Pred || i.width == 1) unsupported("its comparison");
	i.sub = u8(c->second);
	if (c->second >= Cmp::Equ && !isFloat(i.type)) unsupported("its comparison");
	// sub2 is how the result is combined with a predicate: 0 not at all.
	for (size_t k = 2; k + 1 < st->op.size(); k++) {
		if (st->op[k] == "and") i.sub2 = 1;
		else if (st->op[k] == "or") i.sub2 = 2;
		else if (st->op[k] == "xor") i.sub2 = 3;
		else if (st->op[k] == "ftz") i.flags |= Ftz;
		else unsupported("." + st->op[k]);
	}
	count(i.sub2 ? 4 : 3, i.sub2 ? 4 : 3);
	const Operand &d = st->args[0];
	if (d.kind == Operand::Vector && d.parts.size() == 2) {
		i.n = 2;
		u32 trash = 0;
		for (auto &p : d.parts) i.r[i.writes++] = p.kind == Operand::Sink ? (trash ? trash : trash = allocate(0)) : predicate(p, true);
	} else {
		i.r[i.writes++] = predicate(d, true);
	}
	for (int k = 1; k <= 2; k++) i.r[i.writes + i.reads++] = source(st->args[size_t(k)], i.type);
	if (i.sub2) {
		i.r[i.writes + i.reads++] = predicate(st->args[3], false);
		if (st->args[3].negated) i.flags |= NegatedC;
	}
	emit(i);
}

void Decoder::permute() {
	bool logic = st->op[0] == "lop3";
	static const std::vector<std::string> modes = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
	Ins i = begin(logic ? Op::Lop3 : Op::Prmt);
	i.type = Type::B32;
	i.width = 4;
	if (st->op.size() < 2 || st->op[1] != "b32" || st->op.size() > (logic ? 2 : 3)) unsupported();
	count(logic ? 5 : 4, logic ? 5 : 4);
	if (!logic && st->op.size() == 3) {
		auto m = std::find(modes.begin(), modes.end(), st->op[2]);
		if (m == modes.end()) unsupported("." + st->op[2]);
		i.sub = u8(m - modes.begin());
	}
	if (logic && st->args[4].kind != Operand::Immediate) unsupported("with a table in a register");
	if (logic) i.imm = s64(st->args[4].value & 255);
	i.r[i.writes++] = destination(st->args[0], i.type);
	for (size_t k = 1; k <= 3; k++) i.r[i.writes + i.reads++] = source(st->args[k], i.type);
	emit(i);
}
