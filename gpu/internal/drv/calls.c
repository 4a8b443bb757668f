//go:build cuda

#include "calls.h"

// The context that this thread made current last, and when. A context that is made anew
// may lie where an old one was, hence the generation.
static __thread CUcontext current;
static __thread unsigned int since;
static unsigned int generation = 1;

int drv_use(CUcontext ctx) {
	unsigned int now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	if (current == ctx && since == now) return CUDA_SUCCESS;
	CUresult r = cuCtxSetCurrent(ctx);
	if (r == CUDA_SUCCESS) current = ctx, since = now;
	return r;
}

void drv_forget(void) { __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE); }

int drv_current(CUcontext *c) { return cuCtxGetCurrent(c); }

// IN goes on in a context, or returns why not.
#define IN(ctx)                                                                                                        \
	do {                                                                                                               \
		int r = drv_use(ctx);                                                                                          \
		if (r != CUDA_SUCCESS) return r;                                                                               \
	} while (0)

int drv_launch(CUcontext ctx, CUfunction f, CUstream s, drv_dim grid, drv_dim block, unsigned int shared, void *params, size_t bytes) {
	IN(ctx);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, s, NULL, bytes ? extra : NULL);
}

// Memory of Go may only be used until the call returns: then the copy waits, here.
static int done(CUresult r, CUstream s, int wait) { return r == CUDA_SUCCESS && wait ? cuStreamSynchronize(s) : r; }

int drv_upload(CUcontext ctx, CUdeviceptr dst, const void *src, size_t n, CUstream s, int wait) {
	IN(ctx);
	return done(cuMemcpyHtoDAsync(dst, src, n, s), s, wait);
}

int drv_download(CUcontext ctx, void *dst, CUdeviceptr src, size_t n, CUstream s, int wait) {
	IN(ctx);
	return done(cuMemcpyDtoHAsync(dst, src, n, s), s, wait);
}

int drv_copy(CUcontext ctx, CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	IN(ctx);
	return cuMemcpyDtoDAsync(dst, src, n, s);
}

int drv_copy_peer(CUcontext ctx, CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s) {
	IN(ctx);
	return cuMemcpyPeerAsync(dst, to, src, from, n, s);
}

int drv_fill8(CUcontext ctx, CUdeviceptr dst, unsigned char v, size_t n, CUstream s) {
	IN(ctx);
	return cuMemsetD8Async(dst, v, n, s);
}

int drv_fill32(CUcontext ctx, CUdeviceptr dst, unsigned int v, size_t n, CUstream s) {
	IN(ctx);
	return cuMemsetD32Async(dst, v, n, s);
}

int drv_host_alloc(CUcontext ctx, void **p, size_t n) {
	IN(ctx);
	return cuMemHostAlloc(p, n, CU_MEMHOSTALLOC_PORTABLE);
}

int drv_host_free(CUcontext ctx, void *p) {
	IN(ctx);
	return cuMemFreeHost(p);
}

int drv_stream_sync(CUcontext ctx, CUstream s) {
	IN(ctx);
	return cuStreamSynchronize(s);
}

int drv_stream_query(CUcontext ctx, CUstream s) {
	IN(ctx);
	return cuStreamQuery(s);
}

int drv_stream_wait(CUcontext ctx, CUstream s, CUevent e) {
	IN(ctx);
	return cuStreamWaitEvent(s, e, 0);
}

int drv_event_record(CUcontext ctx, CUevent e, CUstream s) {
	IN(ctx);
	return cuEventRecord(e, s);
}

int drv_event_sync(CUcontext ctx, CUevent e) {
	IN(ctx);
	return cuEventSynchronize(e);
}

int drv_event_query(CUcontext ctx, CUevent e) {
	IN(ctx);
	return cuEventQuery(e);
}

int drv_sync(CUcontext ctx) {
	IN(ctx);
	return cuCtxSynchronize();
}

int drv_enable_peer(CUcontext ctx, CUcontext peer) {
	IN(ctx);
	CUresult r = cuCtxEnablePeerAccess(peer, 0);
	return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : r;
}

int drv_function_get(CUcontext ctx, CUfunction f, int attribute, int *value) {
	IN(ctx);
	return cuFuncGetAttribute(value, attribute, f);
}

int drv_function_set(CUcontext ctx, CUfunction f, int attribute, int value) {
	IN(ctx);
	return cuFuncSetAttribute(f, attribute, value);
}

int drv_occupancy(CUcontext ctx, CUfunction f, int block, size_t shared, int *blocks) {
	IN(ctx);
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, block, shared);
}

// The second version tells parts of a card (MIG) from the card.
int drv_uuid(int device, char *uuid) {
	CUresult r = cuDeviceGetUuid_v2((CUuuid *)uuid, device);
	return r == CUDA_ERROR_NOT_SUPPORTED ? cuDeviceGetUuid((CUuuid *)uuid, device) : r;
}

int drv_pci(int device, char *address, int size) { return cuDeviceGetPCIBusId(address, size, device); }
