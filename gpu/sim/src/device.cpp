#include "device.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/mman.h>

namespace {

// reserve takes address space; what is not used of it takes no memory.
template <class T> T *reserve(u64 size, std::string &wrong) {
	void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED) return static_cast<T *>(p);
	if (wrong.empty()) wrong = "mmap of " + std::to_string(size) + " bytes: " + strerror(errno);
	return nullptr;
}

// clear zeroes memory and gives large parts back to the system.
void clear(void *p, u64 size) {
	u8 *a = static_cast<u8 *>(p), *from = reinterpret_cast<u8 *>((u64(a) + 4095) & ~u64(4095)), *to = reinterpret_cast<u8 *>((u64(a) + size) & ~u64(4095));
	if (size < 1 << 16 || madvise(from, size_t(to - from), MADV_DONTNEED)) {
		memset(p, 0, size);
		return;
	}
	memset(a, 0, size_t(from - a));
	memset(to, 0, size_t(a + size - to));
}

// What lies between allocations, so that what runs past one meets nothing.
constexpr u64 Gap = 256;
u64 room(u64 size) { return (size + 255) / 256 * 256 + Gap; }

} // namespace

// The arena is larger than the memory that may be used: what was freed is not used again
// while there is other room, so that who still uses it is seen.
Device::Device(int index) : index(index) {
	arena.base = DeviceBase + u64(index) * DeviceStride;
	arena.size = settings().memory * 2 + (u64(64) << 20);
	std::string answer;
	arena.host = reserve<u8>(arena.size, answer);
	arena.write = reserve<u64>(arena.size * 2, answer);
	arena.read = reserve<u64>(arena.size * 2, answer);
	top = Gap;
	if (answer.empty()) return;
	wrong = "device " + std::to_string(index) + ": address space for " + std::to_string(settings().memory) + " bytes of memory and what is known of them, " +
		std::to_string(arena.size * 5) + " bytes in all, could not be reserved: " + answer + "; LOCKSTEP_SIM_MEMORY makes devices smaller, and ulimit -v says what a process may have";
	arena.size = 0;
}

Device &device(int index) {
	static std::mutex m;
	static std::unique_ptr<Device> devices[MaxDevices];
	std::lock_guard<std::mutex> g(m);
	if (!devices[index]) devices[index].reset(new Device(index));
	return *devices[index];
}

int deviceOf(u64 address) {
	u64 d = (address - DeviceBase) / DeviceStride;
	return address >= DeviceBase && d < u64(settings().devices) && device(int(d)).has(address) ? int(d) : -1;
}

void Device::mark(u64 offset, u64 size, u64 s) {
	u64 *w = arena.write + offset / 4;
	clear(arena.read + offset / 4, (size + 3) / 4 * 8);
	if (!s) return clear(w, (size + 3) / 4 * 8);
	std::fill(w, w + size / 4, s);
	if (size % 4) w[size / 4] = s | stamp::Tail;
}

// reuse finds room among what was freed, where neighbours are one. It goes round the arena,
// so that what was freed last is used again last.
u64 Device::reuse(u64 need) {
	std::map<u64, u64> merged;
	for (auto &f : freedAt) {
		u64 r = room(f.second);
		if (!merged.empty() && merged.rbegin()->first + merged.rbegin()->second == f.first) merged.rbegin()->second += r;
		else merged[f.first] = r;
	}
	auto use = [&](u64 first, u64 size, u64 at) {
		freedAt.erase(freedAt.lower_bound(first), freedAt.lower_bound(first + size));
		if (at > first) freedAt[first] = at - first - Gap;
		if (first + size > at + need) freedAt[at + need] = first + size - at - need - Gap;
		turn = at + need;
		return at;
	};
	for (bool again : {false, true})
		for (auto &m : merged) {
			u64 at = again ? m.first : std::max(m.first, turn);
			if (at < m.first + m.second && m.first + m.second - at >= need) return use(m.first, m.second, at);
		}
	return 0;
}

u64 Device::allocate(u64 size, const void *by, bool ofModule) {
	std::lock_guard<std::mutex> g(table);
	u64 need = room(size), at = top;
	if (need < size || need > settings().memory - taken) return 0;
	if (top + need > arena.size) at = reuse(need);
	else top += need;
	if (!at) return 0;
	taken += need;
	live[at] = {size, by, ofModule};
	if (settings().checks) mark(at, size, stamp::Allocated);
	// What a program reads without having written it is no number.
	memset(arena.host + at, 0xff, size);
	return arena.base + at;
}

bool Device::release(u64 address) {
	std::lock_guard<std::mutex> g(table);
	auto it = live.find(offset(address));
	if (it == live.end()) return false;
	if (settings().checks) mark(it->first, it->second.size, 0);
	clear(arena.host + it->first, it->second.size);
	taken -= room(it->second.size);
	freedAt[it->first] = it->second.size;
	live.erase(it);
	return true;
}

Found Device::before(u64 address) {
	std::lock_guard<std::mutex> g(table);
	Found f;
	auto it = live.upper_bound(offset(address));
	if (it == live.begin()) return f;
	--it;
	static_cast<Allocation &>(f) = it->second;
	f.address = arena.base + it->first;
	return f;
}

Found Device::with(u64 address, u64 size) {
	Found f = before(address);
	u64 at = address - f.address;
	return f.size && at <= f.size && size <= f.size - at ? f : Found{};
}

std::vector<Found> Device::of(const void *owner) {
	std::lock_guard<std::mutex> g(table);
	std::vector<Found> out;
	for (auto &a : live)
		if (a.second.owner == owner) {
			Found f;
			static_cast<Allocation &>(f) = a.second;
			f.address = arena.base + a.first;
			out.push_back(f);
		}
	return out;
}

u64 Device::freed(u64 address) {
	std::lock_guard<std::mutex> g(table);
	auto it = freedAt.upper_bound(offset(address));
	if (it == freedAt.begin()) return 0;
	--it;
	return offset(address) < it->first + it->second ? it->second : 0;
}

u64 Device::used() {
	std::lock_guard<std::mutex> g(table);
	return taken;
}

u64 Device::take(u64 count, u64 queued, const std::string &what, u64 &hazard) {
	if (serial + count >= stamp::SerialEnd) forget();
	u64 first = serial;
	serial += count;
	hazard = first;
	if (latest > queued)
		for (auto &d : done)
			if (d.queued > queued) hazard = std::min(hazard, d.first);
	latest = std::max(latest, queued);
	done.push_back({first, serial, queued, what});
	if (done.size() > 4096) done.pop_front();
	return first;
}

const Done *Device::doneWith(u64 s) const {
	auto it = std::upper_bound(done.begin(), done.end(), s, [](u64 v, const Done &d) { return v < d.first; });
	return it == done.begin() || s >= (--it)->end ? nullptr : &*it;
}

// forget begins the serials again: all that is known of a word is whether it is
// initialised.
void Device::forget() {
	std::lock_guard<std::mutex> g(table);
	for (auto &a : live) {
		u64 *w = arena.write + a.first / 4, *r = arena.read + a.first / 4;
		for (u64 k = 0; k < (a.second.size + 3) / 4; k++) {
			w[k] = stamp::Allocated | (w[k] & (stamp::Init | stamp::Tail));
			r[k] = 0;
		}
	}
	serial = stamp::FirstSerial;
	done.clear();
}
