// What the parts of the decoder share.
#pragma once
#include "code.hpp"

// Frame is one function that is being decoded: the entry, or one that it calls, whose
// statements are put where the call stands.
struct Frame {
	const ptx::Function *fn;
	std::vector<u32> registers;                         // offsets by number
	std::map<const ptx::Variable *, u32> local, bound; // offsets in local memory; parameters bound to the caller's
	Frame *caller = nullptr;
	int id = 0;
};

class Decoder {
  public:
	Decoder(const ptx::Module &m, const std::map<const ptx::Variable *, u64> &address, Code &c) : module(m), address(address), code(c) {}
	void run(const ptx::Function &entry);

  private:
	const ptx::Module &module;
	const std::map<const ptx::Variable *, u64> &address;
	Code &code;
	Frame *frame = nullptr;
	const ptx::Statement *st = nullptr;
	std::map<std::pair<u64, int>, u32> constantAt;
	std::map<std::string, u32> specialAt;
	std::map<const ptx::Variable *, u32> sharedAt, paramAt;
	std::map<int, u32> dynamicAt; // by width: the address of the launch's array
	int frames = 0;
	struct Jump {
		size_t ins;
		std::string label;
	};
	std::vector<Jump> jumps;
	std::map<std::string, u32> labels; // with the frame's number before it, to an instruction

	[[noreturn]] void fail(const std::string &what) const;
	[[noreturn]] void unsupported(const std::string &why = "") const;

	// Structure.
	void function(Frame &f);
	void statement(const ptx::Statement &s);
	void call();
	void split();
	std::string label(const std::string &l) const { return std::to_string(frame->id) + "/" + l; }
	void jump(Ins i, const std::string &l);

	// Registers.
	u32 allocate(int width);
	u32 constant(u64 value, int width, bool pred = false);
	u32 special(const std::string &name);
	u32 variable(const ptx::Variable *v, ptx::Space space, int width);
	u32 localAt(const ptx::Variable *v);
	int widthOf(const ptx::Operand &o) const;
	u32 source(const ptx::Operand &o, ptx::Type t);
	u32 destination(const ptx::Operand &o, ptx::Type t);
	u32 predicate(const ptx::Operand &o, bool dest);

	// Selection.
	Ins begin(Op op) const;
	void emit(Ins i);
	bool has(const char *mod) const;
	void allow(size_t from, const char *mods) const;
	void count(size_t least, size_t most) const;
	ptx::Type typeAt(size_t fromEnd) const;
	bool simple();
	void special();
	void move();
	void memory(bool store);
	void place(Ins &i, const ptx::Operand &o);
	void atomic(bool reduce);
	void async();
	void convert();
	void convertAddress();
	void compare();
	void permute();
	void shuffle();
	void vote();
	void barrier();
	void guardByJump(const ptx::Statement &s);
};
