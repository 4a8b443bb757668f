#include "parse.hpp"
#include <algorithm>
#include <cstdlib>

namespace ptx {

void Parser::body() {
	while (scopes.size()) {
		if (take("{")) {
			if (scopes.size() > size_t(MostDepth)) fail("braces in more than " + std::to_string(MostDepth) + " others");
			scopes.push_back(Scope{{}, {}, {}, scopeCount++});
		} else if (take("}")) {
			scopes.pop_back();
		} else if (peek().kind == Token::Word && peek(1).text == ":" ) {
			std::string l = std::to_string(scopes.back().number) + ":" + word();
			next();
			if (!fn->labels.emplace(l, int(fn->body.size())).second) fail("label " + l + " again");
		} else if (!directive()) {
			statement();
		}
	}
	resolve();
}

bool Parser::directive() {
	if (peek().kind != Token::Word || peek().text[0] != '.') return false;
	std::string w = word();
	if (w == ".reg") {
		registers();
	} else if (w == ".loc") {
		int f = int(number()), l = int(number());
		number();
		// A function that was inlined has two more parts, which name where.
		if (take(",")) { word(); word(); if (take("+")) number(); expect(","); word(); number(); number(); number(); }
		module->locs.push_back({f, l, 0});
		loc = int(module->locs.size()) - 1;
	} else if (spaceNamed(w) != Space::Generic) {
		Variable *v = variable(fn->variables, spaceNamed(w), false);
		scopes.back().variables[v->name] = v;
		expect(";");
	} else if (w == ".pragma") {
		skipTo(";");
	} else {
		at--;
		fail("directive " + w);
	}
	return true;
}

void Parser::registers() {
	std::string w = word();
	Type t = typeNamed(w.substr(1));
	if (t == Type::None || bytes(t) == 1) fail("registers of type " + w);
	do {
		std::string n = word();
		int first = int(fn->registers.size()), count = 1;
		if (take("<")) {
			count = int(within(0, MostRegisters, "number of registers"));
			expect(">");
			scopes.back().many.push_back({n, first, count});
		} else {
			scopes.back().registers[n] = first;
		}
		fn->registers.insert(fn->registers.end(), size_t(count), t);
	} while (take(","));
	expect(";");
}

// name looks for a register, a variable or a special register, from the inside out.
Operand Parser::name(const std::string &n, const Statement &s) {
	Operand o;
	o.name = n;
	for (size_t i = scopes.size(); i-- > 0;) {
		auto &sc = scopes[i];
		auto r = sc.registers.find(n);
		if (r != sc.registers.end()) {
			o.kind = Operand::Register;
			o.reg = r->second;
			return o;
		}
		for (auto &m : sc.many) {
			size_t p = m.prefix.size();
			if (n.size() <= p || n.size() > p + 9 || n.compare(0, p, m.prefix) || n.find_first_not_of("0123456789", p) != std::string::npos) continue;
			int k = atoi(n.c_str() + p);
			if (k >= m.count) continue;
			o.kind = Operand::Register;
			o.reg = m.first + k;
			return o;
		}
		auto v = sc.variables.find(n);
		if (v != sc.variables.end()) {
			o.kind = Operand::Name;
			o.var = v->second;
			return o;
		}
	}
	if (n[0] == '%') {
		o.kind = Operand::Special;
		return o;
	}
	o.kind = Operand::Name;
	auto g = globals.find(n);
	if (g != globals.end()) o.var = g->second;
	else if (s.op[0] != "bra" && s.op[0] != "call") fail("unknown name " + n);
	return o;
}

Operand Parser::operand(const Statement &s) {
	if (++depth > MostDepth) fail("an operand in more than " + std::to_string(MostDepth) + " others");
	Operand o = operandAt(s);
	depth--;
	return o;
}

Operand Parser::operandAt(const Statement &s) {
	Operand o;
	if (take("[")) {
		o.kind = Operand::Address;
		o.parts.push_back(operand(s));
		if (take("+")) {
			bool minus = take("-");
			o.value = number();
			if (minus) o.value = -o.value;
		} else if (take("-")) {
			o.value = -number();
		}
		expect("]");
		return o;
	}
	if (is("{") || is("(")) {
		const char *end = next().text == "{" ? "}" : ")";
		o.kind = Operand::Vector;
		while (!take(end)) {
			o.parts.push_back(operand(s));
			if (!is(end)) expect(",");
		}
		return o;
	}
	if (take("!")) {
		o = name(word(), s);
		o.negated = true;
		return o;
	}
	bool minus = take("-");
	if (minus || peek().kind == Token::Number) {
		o.kind = Operand::Immediate;
		o.real = peek().real;
		o.value = number();
		if (minus) o.value = -o.value;
		return o;
	}
	std::string n = word();
	if (n == "_") return o;
	if (n == "WARP_SZ") {
		o.kind = Operand::Immediate;
		o.value = Lanes;
		return o;
	}
	o = name(n, s);
	// A variable may have something added where its address is meant.
	if (o.kind == Operand::Name && o.var && take("+")) o.value = number();
	return o;
}

void Parser::statement() {
	Statement s;
	s.line = peek().line;
	s.loc = loc;
	s.op = {""};
	if (take("@")) {
		s.guardNegated = take("!");
		Operand g = name(word(), s);
		if (g.kind != Operand::Register || fn->registers[size_t(g.reg)] != Type::Pred) fail("guard " + g.name + " is no predicate");
		s.guard = g.reg;
	}
	std::string op = word();
	s.op.clear();
	for (size_t i = 0; i <= op.size();) {
		size_t dot = op.find('.', i);
		if (dot == std::string::npos) dot = op.size();
		s.op.push_back(op.substr(i, dot - i));
		i = dot + 1;
	}
	while (!take(";")) {
		s.args.push_back(operand(s));
		// setp and shfl write p|q.
		if (take("|")) {
			Operand pair;
			pair.kind = Operand::Vector;
			pair.parts = {s.args.back(), operand(s)};
			s.args.back() = pair;
		}
		if (!is(";")) expect(",");
	}
	if (s.op[0] == "bra") {
		Jump j{fn->body.size(), 0, {}};
		for (auto &sc : scopes) j.chain.push_back(sc.number);
		jumps.push_back(j);
	}
	fn->body.push_back(std::move(s));
}

void Parser::resolve() {
	for (auto &j : jumps) {
		Statement &s = fn->body[j.statement];
		if (s.args.size() != 1 || s.args[0].kind != Operand::Name) throw Error{s.line, s.text() + " without a label"};
		std::string found;
		for (size_t i = j.chain.size(); i-- > 0 && found.empty();) {
			std::string l = std::to_string(j.chain[i]) + ":" + s.args[0].name;
			if (fn->labels.count(l)) found = l;
		}
		if (found.empty()) throw Error{s.line, "unknown label " + s.args[0].name};
		s.args[0].name = found;
	}
	jumps.clear();
}

} // namespace ptx
