// How it starts, and what devices there are.
#include "driver.hpp"
#include <cstdio>
#include <cstring>

extern "C" {

int lockstep_simulator(void) { return LOCKSTEP_SIMULATOR_VERSION; }

CUresult lockstep_simulator_devices(int count) {
	Guard g(driver().lock);
	if (driver().ready || count < 1 || count > MaxDevices) return CUDA_ERROR_INVALID_VALUE;
	settings().devices = count;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
	if (flags) return CUDA_ERROR_INVALID_VALUE;
	Guard g(driver().lock);
	driver().refusal = settings().wrong;
	if (!driver().refusal.empty()) return CUDA_ERROR_INVALID_VALUE;
	for (int d = 0; d < settings().devices; d++) {
		driver().refusal = device(d).wrong;
		if (!driver().refusal.empty()) return CUDA_ERROR_OUT_OF_MEMORY;
	}
	driver().ready = true;
	return CUDA_SUCCESS;
}

const char *lockstep_simulator_refusal(void) {
	Guard g(driver().lock);
	return driver().refusal.c_str();
}

CUresult cuDriverGetVersion(int *v) {
	if (!v) return CUDA_ERROR_INVALID_VALUE;
	*v = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n) {
	if (!driver().ready) return CUDA_ERROR_NOT_INITIALIZED;
	if (!n) return CUDA_ERROR_INVALID_VALUE;
	*n = settings().devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *d, int ordinal) {
	NEED_DEVICE(ordinal);
	if (!d) return CUDA_ERROR_INVALID_VALUE;
	*d = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice d) {
	NEED_DEVICE(d);
	if (!name || len < 1) return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, size_t(len), "lockstep simulated sm_80 (%s, %s)", isa().name, settings().checks ? "all checks" : "no checks");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) {
	NEED_DEVICE(d);
	if (!u) return CUDA_ERROR_INVALID_VALUE;
	// "lockstep-sim" and the device's number.
	memcpy(u->bytes, "lockstep-sim\0\0\0", 16);
	u->bytes[15] = char(d);
	return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { return cuDeviceGetUuid(u, d); }

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice d) {
	NEED_DEVICE(d);
	if (!id || len < 13) return CUDA_ERROR_INVALID_VALUE;
	// No bus has the domain ffff.
	snprintf(id, size_t(len), "FFFF:%02X:00.0", d);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *n, CUdevice d) {
	NEED_DEVICE(d);
	if (!n) return CUDA_ERROR_INVALID_VALUE;
	*n = settings().memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
	NEED_DEVICE(d);
	if (!v) return CUDA_ERROR_INVALID_VALUE;
	static const std::map<int, int> values = {
		{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535}, {8, SharedDefault}, {9, 64 << 10}, {10, Lanes}, {11, 0x7fffffff}, {12, 65536},
		{13, 1000000}, {14, 512}, {15, 1}, {16, int(Multiprocessors)}, {19, 0}, {31, 1}, {36, 1000000}, {37, 1024}, {38, 4 << 20}, {39, 2048}, {40, 2}, {41, 1}, {75, 8}, {76, 0}, {78, 1},
		{81, SharedMost + 1024}, {82, 65536}, {87, 2}, {97, SharedMost}, {106, 32}, {111, 1024}};
	auto it = values.find(int(a));
	*v = it == values.end() ? 0 : it->second;
	if (int(a) == 33) *v = d;       // PCI bus
	if (int(a) == 50) *v = 0xffff;  // PCI domain
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
	NEED_DEVICE(a);
	NEED_DEVICE(b);
	if (!can) return CUDA_ERROR_INVALID_VALUE;
	*can = reach(a, b); // copies reach all
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *v, CUdevice_P2PAttribute, CUdevice a, CUdevice b) { return cuDeviceCanAccessPeer(v, a, b); }

} // extern "C"
