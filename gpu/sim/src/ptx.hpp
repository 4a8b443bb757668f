// PTX as it is written: functions of statements whose names are resolved, nothing more.
#pragma once
#include "types.hpp"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ptx {

Type typeNamed(const std::string &name); // None where there is no such type

// Error is what is wrong with a text, and in which line.
struct Error {
	int line;
	std::string what;
};

struct Variable {
	std::string name;
	Space space = Space::Generic;
	Type type = Type::None;
	u32 align = 1;
	u64 size = 0;
	bool dynamic = false; // an array of shared memory whose size the launch gives
	std::vector<u8> init; // of global and const
	int line = 0;
};

struct Operand {
	enum Kind : u8 { Register, Immediate, Special, Name, Address, Vector, Sink };
	Kind kind = Sink;
	bool negated = false;       // a predicate with ! before it
	bool real = false;          // an immediate written 0f or 0d
	int reg = -1;               // Register: its number in the function
	u64 value = 0;              // Immediate: its bits; Address: what is added
	std::string name;           // Special, Name
	const Variable *var = nullptr; // Name: the variable, if it is one
	std::vector<Operand> parts; // Address: the base; Vector: the elements
};

struct Statement {
	std::vector<std::string> op; // "ld", "global", "f32"
	std::vector<Operand> args;
	int guard = -1;              // the predicate register
	bool guardNegated = false;
	int line = 0, loc = 0;       // loc indexes Module::locs
	std::string text() const;    // the opcode as it is written
};

struct Function {
	std::string name;
	bool entry = false;
	int line = 0;
	std::vector<Variable *> params, results;
	std::vector<Type> registers;
	std::vector<std::unique_ptr<Variable>> variables;
	std::vector<Statement> body;
	std::map<std::string, int> labels; // to the index of a statement
	u32 maxThreads = 1024;             // .maxntid
};

// Location is a line of the source. Outer is the last one before it, in the same function,
// that is of no header: an instruction of a function in a header has both.
struct Location {
	int file, line, outer;
};

struct Module {
	std::string version, target;
	std::vector<std::unique_ptr<Function>> functions;
	std::vector<std::unique_ptr<Variable>> variables;
	std::map<int, std::string> files;
	std::vector<Location> locs;
	const Function *function(const std::string &name) const;
	std::string at(int loc) const; // "gemm.cu:12", "gemm.cu:12(gpu.h:40)", or "?"
};

// parse reads a text, or throws an Error.
std::unique_ptr<Module> parse(const std::string &text);

} // namespace ptx
