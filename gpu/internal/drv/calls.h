// The calls of this project to the driver. A context is current for a thread of the
// operating system, and Go runs a goroutine on any: so each call takes the context and
// makes it current first, where the thread has another.
#ifndef LOCKSTEP_CALLS_H
#define LOCKSTEP_CALLS_H
#include <cuda.h>

typedef struct {
	unsigned int x, y, z;
} drv_dim;

int drv_use(CUcontext ctx);    // makes ctx current for what the thread calls next
void drv_forget(void);         // no thread trusts what it remembers: a context is gone
int drv_current(CUcontext *c); // what the driver says is current

int drv_launch(CUcontext ctx, CUfunction f, CUstream s, drv_dim grid, drv_dim block, unsigned int shared, void *params, size_t bytes);

int drv_upload(CUcontext ctx, CUdeviceptr dst, const void *src, size_t n, CUstream s, int wait);
int drv_download(CUcontext ctx, void *dst, CUdeviceptr src, size_t n, CUstream s, int wait);
int drv_copy(CUcontext ctx, CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s);
int drv_copy_peer(CUcontext ctx, CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s);
int drv_fill8(CUcontext ctx, CUdeviceptr dst, unsigned char v, size_t n, CUstream s);
int drv_fill32(CUcontext ctx, CUdeviceptr dst, unsigned int v, size_t n, CUstream s);

int drv_host_alloc(CUcontext ctx, void **p, size_t n);
int drv_host_free(CUcontext ctx, void *p);

int drv_stream_sync(CUcontext ctx, CUstream s);
int drv_stream_query(CUcontext ctx, CUstream s);
int drv_stream_wait(CUcontext ctx, CUstream s, CUevent e);
int drv_event_record(CUcontext ctx, CUevent e, CUstream s);
int drv_event_sync(CUcontext ctx, CUevent e);
int drv_event_query(CUcontext ctx, CUevent e);
int drv_sync(CUcontext ctx);

int drv_enable_peer(CUcontext ctx, CUcontext peer);
int drv_function_get(CUcontext ctx, CUfunction f, int attribute, int *value);
int drv_function_set(CUcontext ctx, CUfunction f, int attribute, int value);
int drv_occupancy(CUcontext ctx, CUfunction f, int block, size_t shared, int *blocks);
int drv_uuid(int device, char *uuid);
int drv_pci(int device, char *address, int size);
#endif
