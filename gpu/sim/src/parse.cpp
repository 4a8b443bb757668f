#include "lex.hpp"
#include <cstring>

namespace ptx {

Type typeNamed(const std::string &name) {
	static const std::map<std::string, Type> types = {
		{"pred", Type::Pred}, {"b8", Type::B8}, {"b16", Type::B16}, {"b32", Type::B32}, {"b64", Type::B64},
		{"u8", Type::U8}, {"u16", Type::U16}, {"u32", Type::U32}, {"u64", Type::U64}, {"s8", Type::S8},
		{"s16", Type::S16}, {"s32", Type::S32}, {"s64", Type::S64}, {"f32", Type::F32}, {"f64", Type::F64}};
	auto it = types.find(name);
	return it == types.end() ? Type::None : it->second;
}

std::string Statement::text() const {
	std::string s;
	for (auto &p : op) s += (s.empty() ? "" : ".") + p;
	return s;
}

const Function *Module::function(const std::string &name) const {
	for (auto &f : functions)
		if (f->name == name) return f.get();
	return nullptr;
}

std::string Module::at(int loc) const {
	auto text = [&](const Location &l) {
		auto f = files.find(l.file);
		if (f == files.end() || !l.line) return std::string("?");
		return f->second.substr(f->second.find_last_of('/') + 1) + ":" + std::to_string(l.line);
	};
	auto &l = locs[size_t(loc)];
	return l.outer == loc || !l.outer ? text(l) : text(locs[size_t(l.outer)]) + "(" + text(l) + ")";
}

namespace {

// Scope is what braces enclose. Registers of one declaration share a prefix: %r<10>.
struct Scope {
	struct Many {
		std::string prefix;
		int first, count;
	};
	std::map<std::string, int> registers;
	std::vector<Many> many;
	std::map<std::string, const Variable *> variables;
	int number; // tells the labels of scopes apart
};

class Parser {
  public:
	explicit Parser(const std::string &text) : tokens(lex(text)), module(new Module) {
		module->locs.push_back({0, 0, 0});
	}
	std::unique_ptr<Module> run();

  private:
	std::vector<Token> tokens;
	size_t at = 0;
	std::unique_ptr<Module> module;
	std::vector<Scope> scopes;
	std::map<std::string, const Variable *> globals;
	Function *fn = nullptr;
	int loc = 0, scopeCount = 0;
	// Jumps are resolved when the function ends: a label may come later, in this scope
	// or in one around it.
	struct Jump {
		size_t statement, arg;
		std::vector<int> chain;
	};
	std::vector<Jump> jumps;

	const Token &peek(int n = 0) { return tokens[std::min(at + size_t(n), tokens.size() - 1)]; }
	const Token &next() { return tokens[at < tokens.size() - 1 ? at++ : at]; }
	[[noreturn]] void fail(const std::string &what) { throw Error{peek().line, what}; }
	bool is(const char *s) { return peek().text == s && peek().kind != Token::Text; }
	bool take(const char *s) {
		if (!is(s)) return false;
		next();
		return true;
	}
	void expect(const char *s) {
		if (!take(s)) fail(std::string("expected ") + s + ", there is " + peek().text);
	}
	std::string word() {
		if (peek().kind != Token::Word) fail("expected a name, there is " + peek().text);
		return next().text;
	}
	u64 number() {
		if (peek().kind != Token::Number) fail("expected a number, there is " + peek().text);
		return next().value;
	}
	void skipTo(const char *end) {
		while (!is(end)) {
			if (peek().kind == Token::End) fail(std::string("expected ") + end);
			next();
		}
		next();
	}
	void skipBraces() {
		int depth = 0;
		do {
			if (is("{")) depth++;
			if (is("}")) depth--;
			if (peek().kind == Token::End) fail("braces that do not close");
			next();
		} while (depth);
	}

	Variable *variable(std::vector<std::unique_ptr<Variable>> &into, Space space, bool external);
	void initial(Variable &v);
	void file();
	void locate();
	void function(bool entry);
	std::vector<Variable *> params(const char *end);
	void body();
	bool directive();
	void registers();
	void statement();
	Operand operand(const Statement &s);
	Operand name(const std::string &n, const Statement &s);
	void resolve();
};

Space spaceNamed(const std::string &s) {
	if (s == ".shared") return Space::Shared;
	if (s == ".local") return Space::Local;
	if (s == ".param") return Space::Param;
	if (s == ".const") return Space::Const;
	return s == ".global" ? Space::Global : Space::Generic;
}

std::unique_ptr<Module> Parser::run() {
	bool external = false;
	while (peek().kind != Token::End) {
		std::string w = word();
		if (w == ".version") {
			module->version = std::to_string(number());
			// 8.0 is read as 8 and .0, which no name begins with.
			while (peek().kind != Token::Word || !isalpha(u8(peek().text[1]))) next();
		} else if (w == ".target") {
			module->target = word();
			while (take(",")) word();
		} else if (w == ".address_size") {
			if (number() != 64) fail(".address_size other than 64");
		} else if (w == ".extern") {
			external = true;
			continue;
		} else if (w == ".visible" || w == ".weak" || w == ".common") {
			continue;
		} else if (w == ".entry" || w == ".func") {
			if (external) fail(".extern " + w + ": a function of another module");
			function(w == ".entry");
		} else if (spaceNamed(w) != Space::Generic) {
			Variable *v = variable(module->variables, spaceNamed(w), external);
			globals[v->name] = v;
			expect(";");
		} else if (w == ".file") {
			file();
		} else if (w == ".section") {
			word();
			skipBraces();
		} else {
			at--;
			fail("unknown directive " + w);
		}
		external = false;
	}
	locate();
	return std::move(module);
}

// locate finds the outer lines, when all files are known: they are named last.
void Parser::locate() {
	int outer = 0;
	for (size_t k = 0; k < module->locs.size(); k++) {
		auto &l = module->locs[k];
		const std::string &name = module->files[l.file];
		size_t dot = name.find_last_of('.');
		bool header = dot != std::string::npos && strchr("hH", name[dot + 1]);
		if (!l.file) outer = 0;
		else if (!header && l.line) outer = int(k);
		l.outer = outer;
	}
}

void Parser::file() {
	int n = int(number());
	if (peek().kind != Token::Text) fail("expected the name of a file");
	module->files[n] = next().text;
	while (take(",")) number();
}

// variable reads what follows the space: .align 16 .b8 name[1024] = {...}
Variable *Parser::variable(std::vector<std::unique_ptr<Variable>> &into, Space space, bool external) {
	auto v = std::make_unique<Variable>();
	v->space = space;
	v->line = peek().line;
	u32 align = 0;
	while (v->type == Type::None) {
		std::string w = word();
		if (w == ".align") {
			align = u32(number());
		} else if (w == ".attribute") {
			skipTo(")");
		} else if (w != ".ptr" && spaceNamed(w) == Space::Generic) {
			v->type = typeNamed(w.substr(1));
			if (v->type == Type::None || v->type == Type::Pred) fail("type " + w);
		}
	}
	u32 pointee = 0; // .param .u64 .ptr .global .align 4 name says what it points to
	while (is(".ptr") || is(".align") || (peek().kind == Token::Word && peek().text[0] == '.' && spaceNamed(peek().text) != Space::Generic))
		if (word() == ".align") pointee = u32(number());
	(void)pointee;
	v->name = word();
	v->align = align ? align : u32(bytes(v->type));
	v->size = u64(bytes(v->type));
	while (take("[")) {
		if (is("]")) {
			if (space == Space::Shared) v->dynamic = true;
			v->size = 0;
		} else {
			v->size *= number();
		}
		expect("]");
	}
	if (take("=")) initial(*v);
	if (v->dynamic && !external) fail("array " + v->name + " without a size");
	into.push_back(std::move(v));
	return into.back().get();
}

void Parser::initial(Variable &v) {
	if (v.space != Space::Global && v.space != Space::Const) fail("initial value of " + v.name);
	int depth = 0;
	do {
		if (take("{")) {
			depth++;
		} else if (take("}")) {
			depth--;
		} else if (!take(",")) {
			bool minus = take("-");
			u64 n = number();
			if (minus) n = -n;
			for (int i = 0; i < bytes(v.type); i++) v.init.push_back(u8(n >> 8 * i));
		}
	} while (depth);
	if (!v.size) v.size = v.init.size();
	if (v.init.size() > v.size) fail("too many initial values of " + v.name);
	v.init.resize(v.size);
}

std::vector<Variable *> Parser::params(const char *end) {
	std::vector<Variable *> out;
	while (!take(end)) {
		expect(".param");
		out.push_back(variable(fn->variables, Space::Param, false));
		scopes.back().variables[out.back()->name] = out.back();
		if (!is(end)) expect(",");
	}
	return out;
}

void Parser::function(bool entry) {
	auto f = std::make_unique<Function>();
	fn = f.get();
	fn->entry = entry;
	fn->line = peek().line;
	scopes.assign(1, Scope{{}, {}, {}, scopeCount++});
	module->locs.push_back({0, 0, 0}); // begins anew
	loc = 0;
	if (!entry && take("(")) fn->results = params(")");
	fn->name = word();
	if (take("(")) fn->params = params(")");
	while (!is("{") && !is(";")) {
		std::string w = word();
		u64 n = 1;
		if (peek().kind == Token::Number) do n *= number();
			while (take(","));
		if (w == ".maxntid") fn->maxThreads = u32(n);
		else if (w != ".reqntid" && w != ".minnctapersm" && w != ".maxnreg" && w != ".noreturn") fail("directive " + w);
		if (w == ".reqntid") fn->maxThreads = u32(n);
	}
	if (take(";")) return; // a declaration; the function follows
	expect("{");
	body();
	module->functions.push_back(std::move(f));
}

void Parser::body() {
	while (scopes.size()) {
		if (take("{")) {
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
			count = int(number());
			expect(">");
			scopes.back().many.push_back({n, first, count});
		} else {
			scopes.back().registers[n] = first;
		}
		if (count > 100000) fail("more than 100,000 registers");
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
			if (n.size() <= p || n.compare(0, p, m.prefix) || n.find_first_not_of("0123456789", p) != std::string::npos) continue;
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

} // namespace

std::unique_ptr<Module> parse(const std::string &text) { return Parser(text).run(); }

} // namespace ptx
