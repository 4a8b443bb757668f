// Copies and fills. They leave stamps as kernels do, so that who reads what an operation
// on another stream may still write is found, whichever runs first here.
#include "driver.hpp"
#include <algorithm>
#include <cstring>
#include <memory>

namespace {

// Side is one end of a copy: on a device, or on the host.
struct Side {
	u64 at = 0;
	int device = -1;
};

Side sideOf(const void *p) { return {u64(p), deviceOf(u64(p))}; }
u8 *host(const Side &s) { return s.device < 0 ? reinterpret_cast<u8 *>(s.at) : device(s.device).arena.host + device(s.device).offset(s.at); }

bool fits(const Side &s, u64 n) {
	if (s.device < 0) return s.at != 0 || !n;
	return device(s.device).with(s.at, n).size > 0;
}

// Pass judges and stamps what a copy or fill reads or writes of a device's memory.
struct Pass {
	Device &d;
	u64 queued;
	const char *what;
	u64 serial, hazard;

	Pass(Device &d, u64 queued, const char *what) : d(d), queued(queued), what(what) { serial = d.take(1, queued, what, hazard); }

	int find(Fault f, u64 address, const std::string &text) {
		char at[32];
		snprintf(at, sizeof at, "0x%llx", (unsigned long long)address);
		addFinding(std::string(className(f)) + " operation=" + what + " device=" + std::to_string(d.index) + ": " + text + " " + at);
		return errorOf(f);
	}
	// later is an operation that ran before this one although it was queued after it.
	const Done *later(u64 s) {
		if (stamp::serial(s) < hazard) return nullptr;
		const Done *o = d.doneWith(stamp::serial(s));
		return o && o->queued > queued ? o : nullptr;
	}
	static u64 bytes(u64 word, u64 from, u64 to) {
		u64 b = 15;
		if (word * 4 < from) b &= 15ull << (from - word * 4);
		if (word * 4 + 4 > to) b &= 15ull >> (word * 4 + 4 - to);
		return b & 15;
	}
	int read(u64 address, u64 n, bool mustBeWritten) {
		u64 from = d.offset(address), to = from + n;
		for (u64 k = from / 4; k * 4 < to; k++) {
			u64 b = bytes(k, from, to), &w = d.arena.write[k];
			if (mustBeWritten && (w & b) != b) return find(Fault::Uninitialised, d.arena.base + k * 4, "reads memory that was not written, at");
			if (const Done *o = later(w)) return find(Fault::Race, d.arena.base + k * 4, "reads what " + o->what + ", which was queued later, has written: nothing makes it wait, at");
			u64 &r = d.arena.read[k];
			if (!later(r)) r = serial << stamp::SerialShift | stamp::Bytes;
		}
		return 0;
	}
	int write(u64 address, u64 n) {
		u64 from = d.offset(address), to = from + n;
		for (u64 k = from / 4; k * 4 < to; k++) {
			u64 b = bytes(k, from, to), &w = d.arena.write[k];
			if (const Done *o = later(w)) return find(Fault::Race, d.arena.base + k * 4, "writes what " + o->what + ", which was queued later, has written: nothing makes it wait, at");
			if (const Done *o = later(d.arena.read[k])) return find(Fault::Race, d.arena.base + k * 4, "writes what " + o->what + ", which was queued later, has read: nothing makes it wait, at");
			w = serial << stamp::SerialShift | stamp::Bytes | (w & (stamp::Init | stamp::Tail)) | b;
		}
		return 0;
	}
	// take over says of each byte whether it is initialised: as in what was copied.
	void takeOver(u64 to, const Device &other, u64 from, u64 n) {
		u64 a = d.offset(to), b = other.offset(from);
		for (u64 k = 0; k < n; k++)
			if (!(other.arena.write[(b + k) / 4] >> (b + k) % 4 & 1)) d.arena.write[(a + k) / 4] &= ~(u64(1) << (a + k) % 4);
	}
};

// Held is what the host must leave alone while a copy is under way: the source as it
// was, or a target that nobody has touched.
struct Held {
	bool pinned = false;
	std::vector<u8> before;
	u64 writes = 0;
};

// hold remembers pinned memory. A target is made no numbers, so that who reads it too
// early does not find what it expects; unless a copy that comes before still reads it.
Held hold(const Side &s, u64 n, bool target) {
	Held h;
	Pinned *p = s.device < 0 ? pinned(host(s), n) : nullptr;
	h.pinned = p;
	if (!p || !settings().checks || (target && p->reading)) return h;
	if (target) memset(host(s), 0xff, n);
	h.before.assign(host(s), host(s) + n);
	if (!target) p->reading++;
	h.writes = p->writes;
	return h;
}

int touched(const Held &h, const Side &s, u64 n, bool target, int on, const char *what) {
	if (!h.pinned) return 0;
	auto find = [&](const char *did, const u8 *at) {
		char text[160];
		snprintf(text, sizeof text, "%s operation=%s device=%d: the host %s pinned memory at %p while the copy was under way", className(Fault::HostAccess), what, on, did, static_cast<const void *>(at));
		addFinding(text);
		return errorOf(Fault::HostAccess);
	};
	{
		Guard g(driver().lock);
		Pinned *p = pinned(host(s), n);
		if (!p) return find("freed", host(s));
		if (h.before.empty()) return 0;
		if (!target && p->reading) p->reading--; // unless it is another that lies there now
		// Another copy wrote it in between, in its turn.
		if (p->writes != h.writes) return 0;
	}
	auto diff = std::mismatch(h.before.begin(), h.before.end(), host(s));
	return diff.first == h.before.end() ? 0 : find("changed", host(s) + (diff.first - h.before.begin()));
}

void wrote(const Side &s, u64 n) {
	if (s.device >= 0) return;
	Guard g(driver().lock);
	if (Pinned *p = pinned(host(s), n)) p->writes++;
}

struct Copying {
	Side to, from;
	u64 n, queued;
	const char *what;
	Held source, target;
	std::vector<u8> staged; // of memory that is not pinned: the copy has it before the call returns

	int run() {
		int on = to.device >= 0 ? to.device : from.device;
		if (on < 0) {
			memcpy(host(to), host(from), n);
			return 0;
		}
		if (int e = touched(source, from, n, false, on, what)) return e;
		if (int e = touched(target, to, n, true, on, what)) return e;
		// Two devices are taken in their order.
		int other = to.device >= 0 && from.device >= 0 && from.device != to.device ? from.device : on;
		std::unique_lock<std::mutex> a(device(std::min(on, other)).busy), b;
		if (other != on) b = std::unique_lock<std::mutex>(device(std::max(on, other)).busy);
		if (!settings().checks) {
			memmove(host(to), staged.empty() ? host(from) : staged.data(), n);
		} else if (int e = checked()) {
			return e;
		}
		a.unlock();
		if (b) b.unlock();
		wrote(to, n);
		return 0;
	}
	int checked() {
		if (from.device >= 0) {
			Pass p(device(from.device), queued, what);
			if (int e = p.read(from.at, n, to.device < 0)) return e;
		}
		memmove(host(to), staged.empty() ? host(from) : staged.data(), n);
		if (to.device < 0) return 0;
		Pass p(device(to.device), queued, what);
		if (int e = p.write(to.at, n)) return e;
		if (from.device >= 0) p.takeOver(to.at, device(from.device), from.at, n);
		return 0;
	}
};

// Ends says which of its ends a copy must have on a device. One that may be anywhere is of
// the host where it is of no device.
enum Ends { Any, ToDevice, FromDevice, BothDevices };

// copy queues one. A call without a stream, and one with memory that is not pinned as its
// target, returns when it is done.
CUresult copy(Ends ends, const void *to, const void *from, u64 n, CUstream s, bool wait, const char *what) {
	Call c;
	if (c.error) return c.error;
	if (!n) return CUDA_SUCCESS;
	auto k = std::make_shared<Copying>();
	k->to = sideOf(to), k->from = sideOf(from), k->n = n, k->what = what;
	if ((k->to.device < 0 && (ends & ToDevice)) || (k->from.device < 0 && (ends & FromDevice))) return CUDA_ERROR_INVALID_VALUE;
	if (!fits(k->to, n) || !fits(k->from, n)) return CUDA_ERROR_INVALID_VALUE;
	k->queued = ++driver().operations;
	bool pageableTarget = k->to.device < 0 && !pinned(to, n);
	wait = wait || pageableTarget;
	try {
		if (!wait && k->from.device < 0 && !pinned(from, n)) k->staged.assign(host(k->from), host(k->from) + n);
		if (!wait) k->source = hold(k->from, n, false);
		if (!wait) k->target = hold(k->to, n, true);
	} catch (std::bad_alloc &) { // of the host
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	Operation op;
	op.run = [k] { return k->run(); };
	u64 number = 0;
	CUresult e = submit(c, s, std::move(op), &number);
	if (e || !wait) return e;
	CUstream real = streamOf(c.context, s);
	await(c.guard, real, number);
	return CUresult(c.context->error);
}

CUresult fill(u64 to, u32 value, int width, u64 count, CUstream s) {
	Call c;
	if (c.error) return c.error;
	if (!count) return CUDA_SUCCESS;
	Side side = sideOf(reinterpret_cast<void *>(to));
	if (side.device < 0 || count > ~u64(0) / u64(width) || !fits(side, count * u64(width)) || to % u64(width)) return CUDA_ERROR_INVALID_VALUE;
	u64 queued = ++driver().operations;
	Operation op;
	op.run = [=] {
		Device &d = device(side.device);
		std::lock_guard<std::mutex> busy(d.busy);
		u8 *p = host(side);
		for (u64 k = 0; k < count; k++) memcpy(p + k * u64(width), &value, size_t(width));
		return settings().checks ? Pass(d, queued, "fill").write(to, count * u64(width)) : 0;
	};
	return submit(c, s, std::move(op));
}

const void *ptr(CUdeviceptr p) { return reinterpret_cast<const void *>(p); }

} // namespace

extern "C" {

CUresult cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n) { return copy(ToDevice, ptr(d), s, n, nullptr, true, "copy-to-device"); }
CUresult cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n) { return copy(FromDevice, d, ptr(s), n, nullptr, true, "copy-to-host"); }
CUresult cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(BothDevices, ptr(d), ptr(s), n, nullptr, false, "copy"); }
CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(Any, ptr(d), ptr(s), n, nullptr, true, "copy"); }
CUresult cuMemcpyPeer(CUdeviceptr d, CUcontext, CUdeviceptr s, CUcontext, size_t n) { return copy(BothDevices, ptr(d), ptr(s), n, nullptr, false, "copy-to-peer"); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *s, size_t n, CUstream st) { return copy(ToDevice, ptr(d), s, n, st, false, "copy-to-device"); }
CUresult cuMemcpyDtoHAsync(void *d, CUdeviceptr s, size_t n, CUstream st) { return copy(FromDevice, d, ptr(s), n, st, false, "copy-to-host"); }
CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { return copy(BothDevices, ptr(d), ptr(s), n, st, false, "copy"); }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { return copy(Any, ptr(d), ptr(s), n, st, false, "copy"); }
CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext, CUdeviceptr s, CUcontext, size_t n, CUstream st) { return copy(BothDevices, ptr(d), ptr(s), n, st, false, "copy-to-peer"); }

CUresult cuMemsetD8(CUdeviceptr d, unsigned char v, size_t n) { return fill(d, v, 1, n, nullptr); }
CUresult cuMemsetD16(CUdeviceptr d, unsigned short v, size_t n) { return fill(d, v, 2, n, nullptr); }
CUresult cuMemsetD32(CUdeviceptr d, unsigned v, size_t n) { return fill(d, v, 4, n, nullptr); }
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) { return fill(d, v, 1, n, s); }
CUresult cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream s) { return fill(d, v, 2, n, s); }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) { return fill(d, v, 4, n, s); }

} // extern "C"
