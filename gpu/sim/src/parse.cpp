#include "parse.hpp"
#include <algorithm>
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
			if (peek().kind == Token::Word && isdigit(u8(peek().text[1]))) next();
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
			align = alignment();
		} else if (w == ".attribute") {
			skipTo(")");
		} else if (w != ".ptr" && spaceNamed(w) == Space::Generic) {
			v->type = typeNamed(w.substr(1));
			if (v->type == Type::None || v->type == Type::Pred) fail("type " + w);
		}
	}
	// .param .u64 .ptr .global .align 4 name says what it points to.
	while (is(".ptr") || is(".align") || (peek().kind == Token::Word && peek().text[0] == '.' && spaceNamed(peek().text) != Space::Generic))
		if (word() == ".align") alignment();
	v->name = word();
	v->align = align ? align : u32(bytes(v->type));
	v->size = u64(bytes(v->type));
	while (take("[")) {
		if (is("]")) {
			if (space == Space::Shared) v->dynamic = true;
			v->size = 0;
		} else {
			v->size *= within(0, MostBytes / std::max(v->size, u64(1)), "length");
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
		if (peek().kind == Token::Number) do n *= within(1, 65536 / n, w);
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

std::unique_ptr<Module> parse(const std::string &text) { return Parser(text).run(); }

} // namespace ptx
