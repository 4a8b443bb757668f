// A launch of a kernel.
#pragma once
#include "device.hpp"

struct Launch {
	const Code *code;
	Device *device;
	u32 grid[3], block[3];
	u32 dynamicShared;
	std::vector<u8> params;
	std::vector<Peer> peers;
	u64 queued;

	u64 firstSerial = 0, hazard = 0;
	u32 blocks() const { return grid[0] * grid[1] * grid[2]; }
	u32 threads() const { return block[0] * block[1] * block[2]; }
};

// Broken is thrown where a kernel does what it must not.
struct Broken {
	Fault fault;
	std::string finding;
};

// Scarce is thrown where the host has no memory for what a launch needs.
struct Scarce {
	size_t bytes;
};

// execute runs a launch; it returns a CUresult, and adds a finding where that is none of
// success.
int execute(Launch &l);

// together runs work on this thread and on others that have nothing to do, at most so
// many. Each calls it once.
void onThreads(int most, void (*work)(void *), void *arg);
