// Instructions as they are executed: with their operands as offsets into a warp's
// registers, in basic blocks in the order of the text.
#pragma once
#include "types.hpp"

struct Warp;
struct Ins;
using Handler = void (*)(Warp &, const Ins &);

enum class Op : u8 {
	Nop, Mov, Pack, Unpack, LdParam, Ld, St, Atom, CpAsync, CpCommit, CpWait, Fence,
	Add, Sub, Mul, MulHi, MulWide, Mad, MadHi, MadWide, Div, Rem, Min, Max, Neg, Abs,
	AddCC, AddC, AddCCC, SubCC, SubC, SubCCC,
	And, Or, Xor, Not, Cnot, Shl, Shr, ShfL, ShfR, Lop3, Prmt, Bfe, Bfi, Bfind, Brev, Clz, Popc,
	Fma, Sqrt, Rcp, Copysign, Setp, Selp, Cvt, ToShared, FromShared, ToLocal, FromLocal, IsSpace,
	Shfl, Vote, Match, Activemask, Redux,
	Bra, Exit, Bar, Trap, // these end a block
};

enum class Cmp : u8 { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };
enum class AtomOp : u8 { Add, Min, Max, Exch, Cas, And, Or, Xor, Inc, Dec };
enum class ShflMode : u8 { Up, Down, Bfly, Idx };
enum class VoteMode : u8 { All, Any, Uni, Ballot };
enum class Round : u8 { Near, Zero, Down, Up };

enum Flag : u8 {
	Ftz = 1,      // flush subnormal operands and results
	Sat = 2,      // clamp
	Strong = 4,   // volatile or relaxed: no data race with atomics
	Negated = 8,  // of the guard
	NegatedC = 16, // of the predicate that setp combines with
	Wrap = 32,    // shf.wrap; bfind.shiftamt
	Integral = 64, // cvt to an integral float
};

// Ins is one instruction. r holds the registers that it writes, then those that it reads.
struct Ins {
	Handler all = nullptr, some = nullptr; // for all threads that live, and for some
	u32 r[8] = {};
	s64 imm = 0;
	u32 guard = 0; // offset of the predicate, 0 where there is none
	u32 line = 0, loc = 0;
	Op op = Op::Nop;
	ptx::Type type = ptx::Type::None, type2 = ptx::Type::None;
	ptx::Space space = ptx::Space::Generic;
	u8 writes = 0, reads = 0;
	u8 n = 1;     // elements of a vector
	u8 sub = 0;   // one of the enums above
	u8 sub2 = 0;  // width in bytes of the source register of a conversion
	u8 width = 0; // width in bytes of the register that is written or stored
	u8 flags = 0;
	bool tracked = false; // it touches a register that may be read before it is written
	// A collective is of the lanes in a mask; threads meet there and at barriers.
	bool collective() const { return op == Op::Shfl || op == Op::Vote || op == Op::Match || op == Op::Redux || (op == Op::Bar && sub == 3); }
	bool meets() const { return collective() || op == Op::Bar; }
	u32 source(int i) const { return r[writes + i]; }
};

// Block is a run of instructions; its last one may end it.
struct Block {
	u32 first = 0, last = 0; // instructions [first, last); the one at last ends the block, if ends
	bool ends = false;
	bool meets = false; // is one instruction, at which threads meet
	u32 target = 0;     // of Bra
};

// How Bar is meant, in Ins::sub. Its operands are the barrier and, unless r[1] is 0, how
// many threads it waits for.
enum BarKind : u8 { BarSync = 0, BarArrive = 1, BarWarp = 3 };
