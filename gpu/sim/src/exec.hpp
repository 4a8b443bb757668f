// What executes a block: state of warps, and the executors for each instruction set.
#pragma once
#include "ins.hpp"
#include "shadow.hpp"
#include <vector>

// Arena is a device's memory and its shadow. What has the address base + x lies at
// host + x, and the stamps of its word at write[x/4] and read[x/4].
struct Arena {
	u64 base = 0, size = 0;
	u8 *host = nullptr;
	u64 *write = nullptr, *read = nullptr;
};

struct Launch;
struct Code;
class Device;

// Peer is another device, whose memory a kernel may use.
struct Peer {
	Device *device;
	Arena arena;
};

// Group is the lanes of a warp that are at one instruction, which begins a block.
struct Group {
	u32 block, mask;
};

// Copy is one lane's part of a cp.async that has not arrived.
struct Copy {
	u32 target;  // offset in shared memory
	u64 source;  // offset in the arena
	u32 ins, group;
	u8 lane, size, valid; // valid bytes are read, the others are 0
};

struct Run;

struct Warp {
	u8 *registers;
	u32 mask;        // the lanes that execute
	u32 live;        // the lanes that have not returned
	u32 carry;       // of add.cc, a bit for each lane
	u64 now;         // stamp of lane 0, without bytes
	Run *run;
	u32 index;
	u32 born;        // the lanes that the launch gave it
	Group groups[Lanes];
	int groupCount;
	enum State : u8 { Ready, AtBarrier, Done } state;
	u32 barrier, barrierCount, barrierIns; // where it waits
	u32 *local, *localInit; // local memory: word w of lane l at w*32+l; bit l of localInit[w]
	u32 *defined;           // of tracked registers: the lanes that have written them
	Copy *copies;
	u32 copyCount, copyRoom, copyGroup;
	u64 executed; // instructions
};

// Run is one block of a launch on one worker.
struct Run {
	const Ins *ins;
	const Block *blocks;
	const Code *code;
	Launch *launch;
	const u8 *params;
	u32 paramBytes;
	Arena arena;
	const std::vector<Peer> *peers; // whose memory the kernel may use; null where there is none
	u64 serial, firstSerial, hazard; // of the block, of the launch; stamps from hazard on may be unordered with it
	bool checks;
	u32 epoch; // barriers of the block so far
	u32 arrived[16]; // threads that arrived at a barrier and went on
	u8 *shared;
	u64 *sharedWrite, *sharedRead;
	u32 sharedBytes, localBytes;
	const u8 *localValid; // for each word of local memory whether a variable has it
	u32 bid[3];
	u64 budget; // instructions that a warp may execute
};

// Isa is the executor for an instruction set: resolve finds the handlers of an instruction
// (false where there are none), run executes a warp until it waits or ends.
struct Isa {
	const char *name;
	bool (*resolve)(Ins &, bool checks);
	void (*run)(Warp &);
};
extern const Isa isaGeneric, isaAvx2, isaAvx512;
const Isa &isa(); // the best that this processor has, or what LOCKSTEP_SIM_ISA names

// What goes wrong while a kernel runs. The class is the first word of a finding.
enum class Fault : u8 { OutOfBounds, Misaligned, Uninitialised, Race, Barrier, Shuffle, UseAfterFree, OtherDevice, HostAccess, Leak, Trap, Timeout, HostMemory };

// fault ends the block.
[[noreturn]] __attribute__((cold, noinline, format(printf, 5, 6))) void fault(Warp &w, const Ins &i, int lane, Fault f, const char *format, ...);

// checkGlobal and checkShared judge and stamp one access of a lane to a word, bytes being
// a bit for each. The executor calls them where it cannot tell at once that all is well.
enum class Access : u8 { Read, StrongRead, Write, StrongWrite, Atomic };
void checkGlobal(Warp &w, const Ins &i, int lane, u64 offset, u32 size, Access a);
void checkShared(Warp &w, const Ins &i, int lane, u32 offset, u32 size, Access a);
// wild says what is wrong with an address that is no memory of this device.
[[noreturn]] void wild(Warp &w, const Ins &i, int lane, u64 address, u32 size, bool write);

// reachPeer judges an access of a lane to memory of a peer.
void reachPeer(Warp &w, const Ins &i, int lane, Device *peer, u64 address, u32 size, bool write);

// How lanes meet: diverged is where they do not.
[[noreturn]] void diverged(Warp &w);

void addCopy(Warp &w, const Copy &c);
void landCopies(Warp &w, u32 keep, bool all); // those of groups before the last keep ones
void startCopy(Warp &w, const Ins &i, int lane, u64 source, u32 target, u32 size, u32 valid);
void trackBefore(Warp &w, const Ins &i); // a read of a register that was not written is a fault
void trackAfter(Warp &w, const Ins &i);
