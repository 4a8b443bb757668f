// Code is a kernel as it is executed.
#pragma once
#include "ins.hpp"
#include "ptx.hpp"

struct Code {
	std::string name;
	const ptx::Module *module = nullptr;
	std::vector<Ins> ins;
	std::vector<Block> blocks;

	u32 frame = 0; // bytes of a warp's registers
	struct Constant {
		u32 at, width; // 4: a predicate or 32 bits, by vector
		bool pred;
		u64 value;
	};
	std::vector<Constant> constants;
	struct Special {
		u32 at;
		std::string name;
	};
	std::vector<Special> specials;
	// Registers that may be read before they are written: for those alone the executor
	// keeps which lanes have written them.
	std::map<u32, u32> tracked; // register to index

	struct Param {
		u32 at, size, align;
	};
	std::vector<Param> params;
	u32 paramBytes = 0;
	struct Range {
		u32 at, size;
		std::string name;
	};
	std::vector<Range> shared, local; // variables, with gaps between them
	u32 sharedStatic = 0; // what the variables take by themselves
	u32 sharedDynamic = 0; // where the launch's array begins
	u32 localBytes = 0;
	u32 maxThreads = 1024;
};

// decode makes what is executed of an entry; address gives where the module's global
// variables lie. It throws a ptx::Error.
std::unique_ptr<Code> decode(const ptx::Module &m, const ptx::Function &entry, const std::map<const ptx::Variable *, u64> &address);

// trackRegisters finds the registers that may be read before they are written.
void trackRegisters(Code &c);
