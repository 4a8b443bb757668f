// Contexts.
#include "driver.hpp"

Driver &driver() {
	static Driver *d = new Driver; // calls may come while the process ends
	return *d;
}

namespace {

thread_local std::vector<CUctx_st *> stack;

CUctx_st *make(int device, bool primary) {
	auto *c = new CUctx_st;
	c->device = device;
	c->primary = primary;
	c->null = new CUstream_st;
	c->null->context = c;
	driver().handles.add(c);
	return c;
}

} // namespace

CUctx_st *&current() {
	static thread_local CUctx_st *none;
	return stack.empty() ? none = nullptr : stack.back();
}

Call::Call() : guard(driver().lock), context(current()), error(CUDA_SUCCESS) {
	if (!driver().ready) error = CUDA_ERROR_NOT_INITIALIZED;
	else if (!context) error = CUDA_ERROR_INVALID_CONTEXT;
	else if (!context->alive) error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	else error = CUresult(context->error);
}

// endContext ends all work and says what is still there.
void endContext(Guard &g, CUctx_st *c) {
	awaitContext(g, c);
	leaks(c);
	c->alive = false;
	auto &h = driver().handles;
	for (auto *s : c->streams) h.erase(s);
	for (auto *e : c->events) h.erase(e);
	for (auto *m : std::set<CUmodule>(c->modules)) freeModule(m);
	h.erase(c);
	Device &d = device(c->device);
	for (auto &f : d.of(c)) d.release(f.address);
}

extern "C" {

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	Call c;
	if (c.error) return c.error;
	if (flags) return CUDA_ERROR_INVALID_VALUE;
	if (!driver().handles.has(peer)) return CUDA_ERROR_INVALID_CONTEXT;
	if (!reach(c.context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return c.context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
	Call c;
	if (c.error) return c.error;
	if (!driver().handles.has(peer)) return CUDA_ERROR_INVALID_CONTEXT;
	return c.context->peers.erase(peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	NEED_DEVICE(d);
	if (!c) return CUDA_ERROR_INVALID_VALUE;
	Guard g(driver().lock);
	auto *&p = driver().primary[d];
	if (!p) p = make(d, true);
	p->references++;
	*c = p;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
	NEED_DEVICE(d);
	Guard g(driver().lock);
	auto *p = driver().primary[d];
	if (!p || !p->references) return CUDA_ERROR_INVALID_CONTEXT;
	if (--p->references) return CUDA_SUCCESS;
	driver().primary[d] = nullptr;
	endContext(g, p);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice d) {
	NEED_DEVICE(d);
	Guard g(driver().lock);
	auto *p = driver().primary[d];
	if (!p) return CUDA_SUCCESS;
	driver().primary[d] = nullptr;
	endContext(g, p);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
	NEED_DEVICE(d);
	if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
	Guard g(driver().lock);
	*flags = driver().primary[d] ? driver().primary[d]->flags : 0;
	*active = driver().primary[d] != nullptr;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) {
	NEED_DEVICE(d);
	Guard g(driver().lock);
	if (driver().primary[d]) driver().primary[d]->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *c, unsigned flags, CUdevice d) {
	NEED_DEVICE(d);
	if (!c) return CUDA_ERROR_INVALID_VALUE;
	Guard g(driver().lock);
	*c = make(d, false);
	(*c)->flags = flags;
	stack.push_back(*c);
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext c) {
	Guard g(driver().lock);
	if (!driver().handles.has(c)) return CUDA_ERROR_INVALID_CONTEXT;
	if (c->primary) return CUDA_ERROR_INVALID_CONTEXT;
	endContext(g, c);
	if (!stack.empty() && stack.back() == c) stack.pop_back();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext c) {
	Guard g(driver().lock);
	if (!driver().ready) return CUDA_ERROR_NOT_INITIALIZED;
	if (c && !driver().handles.has(c)) return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.empty()) stack.pop_back();
	if (c) stack.push_back(c);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *c) {
	if (!driver().ready) return CUDA_ERROR_NOT_INITIALIZED;
	if (!c) return CUDA_ERROR_INVALID_VALUE;
	*c = current();
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext c) {
	Guard g(driver().lock);
	if (!driver().handles.has(c)) return CUDA_ERROR_INVALID_CONTEXT;
	stack.push_back(c);
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *c) {
	if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
	if (c) *c = stack.back();
	stack.pop_back();
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *d) {
	Call c;
	if (!c.context) return c.error;
	if (!d) return CUDA_ERROR_INVALID_VALUE;
	*d = c.context->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags) {
	Call c;
	if (!c.context) return c.error;
	if (!flags) return CUDA_ERROR_INVALID_VALUE;
	*flags = c.context->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned *v) {
	if (!v) return CUDA_ERROR_INVALID_VALUE;
	*v = 3020;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
	Call c;
	if (c.error) return c.error;
	awaitContext(c.guard, c.context);
	return CUresult(c.context->error);
}

CUresult cuCtxSetLimit(CUlimit l, size_t v) {
	Call c;
	if (!c.error) c.context->limits[l] = v;
	return c.error;
}

CUresult cuCtxGetLimit(size_t *v, CUlimit l) {
	Call c;
	if (c.error) return c.error;
	if (!v) return CUDA_ERROR_INVALID_VALUE;
	*v = c.context->limits[l];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	Call c;
	if (least) *least = 0;
	if (greatest) *greatest = -5;
	return c.error;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *f) {
	if (!f) return CUDA_ERROR_INVALID_VALUE;
	*f = CU_FUNC_CACHE_PREFER_NONE;
	return Call().error;
}
CUresult cuCtxSetCacheConfig(CUfunc_cache) { return Call().error; }
CUresult cuCtxGetSharedMemConfig(CUsharedconfig *s) {
	if (!s) return CUDA_ERROR_INVALID_VALUE;
	*s = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return Call().error;
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig) { return Call().error; }

} // extern "C"
