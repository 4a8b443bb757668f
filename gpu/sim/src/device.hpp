// A device: its memory, what is allocated of it, and what has run on it.
#pragma once
#include "exec.hpp"
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// Settings come from the environment, once.
struct Settings {
	int devices;
	u64 memory; // bytes of each device
	int threads;
	bool checks, quiet;
	int isa;           // at most so: 1 generic, 2 AVX2, 3 AVX-512, 0 the best there is
	u64 budget;        // instructions a warp may execute
	std::string wrong; // the first variable that is not what it may be
};
Settings &settings();

struct Allocation {
	u64 size = 0;
	const void *owner = nullptr; // the context
	bool ofModule = false;
};

// Found is an allocation and where it begins: size 0 is none.
struct Found : Allocation {
	u64 address = 0;
};

// Done is an operation that has run on the device: a launch, a copy, a fill. Operations
// are numbered as they are queued, which is not the order in which streams run.
struct Done {
	u64 first, end; // serials
	u64 queued;
	std::string what;
};

class Device {
  public:
	explicit Device(int index);
	const int index;
	Arena arena;
	std::string wrong; // why it has no memory
	std::mutex busy; // one operation runs at a time; allocations go on meanwhile

	u64 allocate(u64 size, const void *owner, bool ofModule); // an address, 0 where there is no room
	bool release(u64 address);
	Found with(u64 address, u64 size); // the allocation that has all of a range
	Found before(u64 address);         // the last one that begins at or before an address
	std::vector<Found> of(const void *owner);
	u64 freed(u64 address); // how large an allocation was that had the address, 0 if none had
	u64 used();
	u64 offset(u64 address) const { return address - arena.base; }
	bool has(u64 address) const { return offset(address) < arena.size; }

	// take gives serials to an operation that was queued as number queued; hazard is from
	// which serial on stamps may be of operations that were queued later.
	u64 take(u64 count, u64 queued, const std::string &what, u64 &hazard);
	const Done *doneWith(u64 serial) const;

  private:
	std::mutex table; // of what is allocated
	std::map<u64, Allocation> live; // by offset, like what was freed and is not yet used again
	std::map<u64, u64> freedAt;
	u64 taken = 0, top = 0, turn = 0;
	std::deque<Done> done; // in the order in which they ran
	u64 serial = stamp::FirstSerial, latest = 0;
	void mark(u64 offset, u64 size, u64 s);
	u64 reuse(u64 need);
	void forget();
};

Device &device(int index);
int deviceOf(u64 address); // -1 where it is of none

// Findings are kept until they are fetched or cleared, at most 1,000 of them.
const char *className(Fault f);
int errorOf(Fault f); // a CUresult
void addFinding(const std::string &line);
