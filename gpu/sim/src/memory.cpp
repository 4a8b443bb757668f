// Allocations of device memory and of pinned memory of the host.
#include "driver.hpp"
#include <cstdlib>

namespace {

std::map<u64, Pinned> &pins() {
	static auto *p = new std::map<u64, Pinned>;
	return *p;
}

} // namespace

// pinned finds the allocation of the host that has a range, for who holds the lock.
Pinned *pinned(const void *p, u64 size) {
	auto it = pins().upper_bound(u64(p));
	if (it == pins().begin()) return nullptr;
	--it;
	u64 at = u64(p) - it->first;
	return at <= it->second.size && size <= it->second.size - at ? &it->second : nullptr;
}

// leaks says what a context still has when it ends.
void leaks(CUctx_st *c) {
	std::string head = std::string(className(Fault::Leak)) + " device=" + std::to_string(c->device) + ": ";
	u64 count = 0, bytes = 0, first = 0;
	for (auto &f : device(c->device).of(c)) {
		if (f.ofModule) continue;
		if (!count++) first = f.address;
		bytes += f.size;
	}
	char text[96];
	snprintf(text, sizeof text, "%llu allocations of %llu bytes, the first at 0x%llx", (unsigned long long)count, (unsigned long long)bytes, (unsigned long long)first);
	if (count) addFinding(head + text);
	u64 host = 0;
	for (auto it = pins().begin(); it != pins().end();) {
		if (it->second.owner != c) {
			++it;
			continue;
		}
		host += it->second.size;
		if (!it->second.registered) free(reinterpret_cast<void *>(it->first));
		it = pins().erase(it);
	}
	if (host) addFinding(head + std::to_string(host) + " bytes of pinned memory");
	if (!c->streams.empty()) addFinding(head + std::to_string(c->streams.size()) + " streams");
	if (!c->events.empty()) addFinding(head + std::to_string(c->events.size()) + " events");
}

extern "C" {

CUresult cuMemGetInfo(size_t *free, size_t *total) {
	Call c;
	if (c.error) return c.error;
	if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
	*total = settings().memory;
	*free = settings().memory - device(c.context->device).used();
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *p, size_t n) {
	CUctx_st *ctx;
	{
		Call c;
		if (c.error) return c.error;
		ctx = c.context;
	}
	if (!p || !n) return CUDA_ERROR_INVALID_VALUE;
	u64 a = device(ctx->device).allocate(n, ctx, false);
	if (!a) return CUDA_ERROR_OUT_OF_MEMORY;
	*p = a;
	return CUDA_SUCCESS;
}

// cuMemFree waits for all work of the context, as the driver does.
CUresult cuMemFree(CUdeviceptr p) {
	Call c;
	if (!c.context) return c.error;
	if (!p) return CUDA_SUCCESS;
	int index = deviceOf(p);
	if (index < 0) return CUDA_ERROR_INVALID_VALUE;
	awaitContext(c.guard, c.context);
	Found f = device(index).with(p, 0);
	if (f.address != p || f.ofModule) return CUDA_ERROR_INVALID_VALUE;
	device(index).release(p);
	return CUresult(c.context->error);
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p) {
	Call c;
	if (c.error) return c.error;
	int index = deviceOf(p);
	if (index < 0) return CUDA_ERROR_NOT_FOUND;
	Found f = device(index).with(p, 1);
	if (!f.size) return CUDA_ERROR_NOT_FOUND;
	if (base) *base = f.address;
	if (size) *size = f.size;
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
	Call c;
	if (c.error) return c.error;
	if (!p || !n) return CUDA_ERROR_INVALID_VALUE;
	void *a = n > ~size_t(4095) ? nullptr : aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	if (!a) return CUDA_ERROR_OUT_OF_MEMORY;
	*p = a;
	pins()[u64(a)] = {n, c.context, false, 0, 0};
	return CUDA_SUCCESS;
}

// Not every table of the driver's functions has the older name.
__attribute__((visibility("default"))) CUresult cuMemAllocHost_v2(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }

CUresult cuMemFreeHost(void *p) {
	Call c;
	if (!c.context) return c.error;
	auto it = pins().find(u64(p));
	if (it == pins().end() || it->second.registered) return CUDA_ERROR_INVALID_VALUE;
	awaitContext(c.guard, c.context);
	free(p);
	pins().erase(u64(p));
	return CUresult(c.context->error);
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p) {
	Call c;
	if (c.error) return c.error;
	if (!out) return CUDA_ERROR_INVALID_VALUE;
	int index = deviceOf(p);
	Pinned *host = pinned(reinterpret_cast<void *>(p), 1);
	if (index < 0 && !host) return CUDA_ERROR_INVALID_VALUE;
	switch (int(a)) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *static_cast<unsigned *>(out) = index < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr *>(out) = p; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: *static_cast<CUdeviceptr *>(out) = p; return index < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int *>(out) = index < 0 ? c.context->device : index; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned *>(out) = 0; return CUDA_SUCCESS;
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
}

} // extern "C"
