// The parser: modules in parse.cpp, statements in statement.cpp.
#pragma once
#include "lex.hpp"

namespace ptx {

Space spaceNamed(const std::string &s); // ".shared"; Generic where it is none

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

// What a text may ask for: more is a mistake, or would take all there is of the host.
constexpr u64 MostAlignment = 4096, MostBytes = u64(1) << 40, MostRegisters = 100000;
constexpr int MostDepth = 200; // of braces in braces, and of calls in calls

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
	int loc = 0, scopeCount = 0, depth = 0;
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
	// within is number, where only some are meant.
	u64 within(u64 least, u64 most, const std::string &what) {
		if (peek().kind == Token::Number && (peek().value < least || peek().value > most)) fail(what + " of " + peek().text + ", it must be from " + std::to_string(least) + " to " + std::to_string(most));
		return number();
	}
	u32 alignment() {
		u64 n = within(1, MostAlignment, "alignment");
		if (n & (n - 1)) fail("alignment of " + std::to_string(n) + ", which is no power of 2");
		return u32(n);
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
	Operand operandAt(const Statement &s);
	Operand name(const std::string &n, const Statement &s);
	void resolve();
};

} // namespace ptx
