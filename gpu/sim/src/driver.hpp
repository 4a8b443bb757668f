// The driver's objects: contexts, streams, events, modules, and the queue of operations.
#pragma once
#include "code.hpp"
#include "launch.hpp"
#pragma GCC visibility push(default)
#include <cuda.h>
#include <simulator.h>
#pragma GCC visibility pop
#include <condition_variable>
#include <functional>
#include <memory>
#include <set>
#include <typeindex>

// After is a place in a stream: what is queued up to count.
struct After {
	CUstream stream;
	u64 count;
};

struct Operation {
	std::function<int()> run; // a CUresult; what runs takes the device itself
	std::vector<After> after;
	CUevent record = nullptr;
};

struct CUctx_st {
	int device = 0;
	bool primary = false, alive = true;
	int references = 0;
	int error = 0; // the first one; it stays
	unsigned flags = 0;
	CUstream null = nullptr; // the stream that has no handle
	std::set<CUstream> streams;
	std::set<CUevent> events;
	std::set<CUmodule> modules;
	std::set<CUcontext> peers; // whose devices' memory kernels of this one may use
	std::map<int, size_t> limits;
};

struct CUstream_st {
	CUctx_st *context = nullptr;
	unsigned flags = 0;
	int priority = 0;
	std::deque<Operation> queue;
	u64 queued = 0, done = 0;
	bool running = false;
};

struct CUevent_st {
	CUctx_st *context = nullptr;
	unsigned flags = 0;
	bool recorded = false;
	After at{};
	double time = 0;
};

struct CUfunc_st {
	std::unique_ptr<Code> code;
	CUmodule module = nullptr;
	u32 dynamicMost = SharedDefault;
};

struct CUmod_st {
	CUctx_st *context = nullptr;
	std::unique_ptr<ptx::Module> text;
	std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
	std::map<std::string, std::pair<u64, u64>> globals; // address and size
	std::vector<u64> memory;                            // of all variables
};

// Handles are what is alive of contexts, streams, events, modules and functions; each is of
// its kind alone.
class Handles {
  public:
	template <class T> void add(T *h) { kinds.emplace(h, typeid(T)); }
	template <class T> bool has(T *h) const {
		auto it = kinds.find(h);
		return it != kinds.end() && it->second == typeid(T);
	}
	void erase(const void *h) { kinds.erase(h); }

  private:
	std::map<const void *, std::type_index> kinds;
};

// Driver is what all calls share. Its lock is not held while an operation runs.
struct Driver {
	std::mutex lock;
	std::condition_variable changed;
	bool ready = false;
	std::string refusal; // why cuInit failed last
	u64 operations = 0;
	CUctx_st *primary[MaxDevices] = {};
	Handles handles;
};
Driver &driver();
using Guard = std::unique_lock<std::mutex>;

// reach is whether kernels of device a can be let use memory of b: two and two devices are
// joined, so that programs meet both.
inline bool reach(int a, int b) { return a != b && a / 2 == b / 2; }

// Call begins a call that needs a current context: it holds the lock, and says what is
// wrong.
struct Call {
	Guard guard;
	CUctx_st *context;
	CUresult error;
	Call();
};

// NEED_DEVICE returns from a call of a device that is none.
#define NEED_DEVICE(d) \
	if (!driver().ready) return CUDA_ERROR_NOT_INITIALIZED; \
	if ((d) < 0 || (d) >= settings().devices) return CUDA_ERROR_INVALID_DEVICE

CUctx_st *&current();

// submit queues an operation; operations are numbered as they come.
CUresult submit(Call &c, CUstream s, Operation op, u64 *number = nullptr);
// await runs what is queued in a stream, up to a count, and what that waits for.
void await(Guard &g, CUstream s, u64 count);
void awaitContext(Guard &g, CUctx_st *c);
CUstream streamOf(CUctx_st *c, CUstream s); // null where the handle is none
void endContext(Guard &g, CUctx_st *c);     // says what was left behind

// Pinned memory of the host.
struct Pinned {
	u64 size;
	const void *owner;
	bool registered;
	u64 writes;  // copies to it so far
	u64 reading; // copies from it that have not run
};
Pinned *pinned(const void *p, u64 size);
void leaks(CUctx_st *c);
void freeModule(CUmod_st *m);
