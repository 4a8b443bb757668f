// A CUDA driver for tests of package gpu: devices are memory of the host, and streams do
// nothing until something waits for them. It knows one kernel, and it is strict: whatever is
// called outside the context that it belongs to fails.
//
// Macros make variants: DEVICES, VERSION, INIT (the result of cuInit), MAJOR (of the compute
// capability), PEERS (may access each other), NAME and UUID (how it begins) of its
// devices, SIMULATOR (the version it claims), REFUSAL (why its cuInit fails).
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef VERSION
#define VERSION 12040
#endif
#ifndef INIT
#define INIT CUDA_SUCCESS
#endif
#ifndef MAJOR
#define MAJOR 9
#endif
#ifndef PEERS
#define PEERS 1
#endif
#ifndef NAME
#define NAME "Fake"
#endif
#ifndef UUID
#define UUID ""
#endif

enum { MEMORY = 1 << 20 }; // bytes of a device
enum { SETS = 1000, ALLOCATED, REFS, PEERS_OF }; // attributes that tests ask for

struct CUctx_st { int device, refs, generation; unsigned peers; };
struct CUevent_st { CUcontext ctx; CUstream on; long recorded, fired; };
struct CUmod_st { CUcontext ctx; char *text; };
struct CUfunc_st { CUcontext ctx; int shared; };
enum kind { COPY, FILL8, FILL32, STORE, RECORD, WAIT };
struct op { enum kind kind; char *dst; const char *src; size_t n; unsigned value; CUevent event; long ticket; struct op *next; };
struct CUstream_st { CUcontext ctx; struct op *first, **last; CUstream next; };
struct block { char *p; size_t n; int device; struct block *next; }; // device is -1 for pinned memory

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primary[DEVICES + 1];
static struct block *blocks;
static CUstream streams;
static size_t used[DEVICES + 1];
static int devices = DEVICES, sets;
static __thread CUcontext current;
static __thread int generation;

#define GUARD __attribute__((cleanup(unlock))) int locked = pthread_mutex_lock(&mutex); (void)locked
static void unlock(int *l) { (void)l; pthread_mutex_unlock(&mutex); }
// IN is for calls that need some context, OF for those of an object.
#define IN GUARD; if (!current || current->refs == 0 || current->generation != generation) return CUDA_ERROR_INVALID_CONTEXT
#define OF(h) IN; if (!(h)) return CUDA_ERROR_INVALID_HANDLE; if ((h)->ctx != current) return CUDA_ERROR_INVALID_CONTEXT

static char findings[4096];
#ifdef SIMULATOR
int lockstep_simulator(void) { return SIMULATOR; }
CUresult lockstep_simulator_devices(int n) { return n > DEVICES ? CUDA_ERROR_INVALID_VALUE : (devices = n, CUDA_SUCCESS); }
const char *lockstep_simulator_findings(void) { return findings; }
#ifdef REFUSAL
const char *lockstep_simulator_refusal(void) { return REFUSAL; }
#endif
#endif

CUresult cuInit(unsigned int flags) { return flags ? CUDA_ERROR_INVALID_VALUE : INIT; }
CUresult cuDriverGetVersion(int *v) { return *v = VERSION, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { return *n = devices, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { return i < 0 || i >= devices ? CUDA_ERROR_INVALID_DEVICE : (*d = i, CUDA_SUCCESS); }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { return snprintf(s, n, NAME " %d", d), CUDA_SUCCESS; }
CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { return memset(u, 0x10 + d, sizeof *u), memcpy(u, UUID, sizeof UUID - 1), CUDA_SUCCESS; }
CUresult cuDeviceGetPCIBusId(char *s, int n, CUdevice d) { return snprintf(s, n, "0000:%02X:00.0", 0x1A + d), CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(size_t *n, CUdevice d) { return (void)d, *n = MEMORY, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
	GUARD;
	switch ((int)a) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = MAJOR; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 132; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = 227 << 10; break;
	case SETS: *v = sets; break;
	case ALLOCATED: *v = (int)used[d]; break;
	case REFS: *v = primary[d].refs; break;
	case PEERS_OF: *v = (int)primary[d].peers; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return *can = PEERS && a != b, CUDA_SUCCESS; }

static void run(CUstream s, CUevent e, long ticket) { // until the event has fired so often, or all
	while (s->first && !(e && e->fired >= ticket)) {
		struct op *o = s->first;
		if (!(s->first = o->next)) s->last = &s->first;
		switch (o->kind) {
		case COPY: memmove(o->dst, o->src, o->n); break;
		case FILL8: memset(o->dst, (int)o->value, o->n); break;
		case FILL32: case STORE: for (size_t i = 0; i < o->n; i++) memcpy(o->dst + 4 * i, &o->value, 4); break;
		case RECORD: if (o->event->fired < o->ticket) o->event->fired = o->ticket; break;
		case WAIT: if (o->event->fired < o->ticket) run(o->event->on, o->event, o->ticket); break;
		}
		free(o);
	}
}
static void run_all(void) {
	for (CUstream s = streams; s; s = s->next) run(s, NULL, 0);
}
static CUresult add(CUstream s, struct op o) {
	struct op *p = malloc(sizeof o);
	*p = o;
	*s->last = p, s->last = &p->next;
	return CUDA_SUCCESS;
}

static CUresult allocate(void **p, size_t n, int device) {
	struct block *b = malloc(sizeof *b);
	*b = (struct block){aligned_alloc(4096, (n + 4095) & ~(size_t)4095), n, device, blocks};
	memset(b->p, 0xA5, n);
	return blocks = b, *p = b->p, CUDA_SUCCESS;
}
static CUresult release(void *p, int device) {
	for (struct block **b = &blocks; *b; b = &(*b)->next) {
		if ((*b)->p != p || (*b)->device != device) continue;
		struct block *gone = *b;
		*b = gone->next;
		if (device >= 0) used[device] -= gone->n;
		return free(gone->p), free(gone), CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

// A context that is made anew lies where the old one was.
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	GUARD;
	if (primary[d].refs++ == 0) primary[d].device = d, primary[d].generation++, primary[d].peers = 0;
	return *c = &primary[d], CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
	GUARD;
	if (primary[d].refs == 0) return CUDA_ERROR_INVALID_CONTEXT;
	if (--primary[d].refs > 0) return CUDA_SUCCESS;
	run_all();
	for (struct block *b = blocks, *next; b; b = next) {
		next = b->next;
		if (b->device == d) release(b->p, d);
	}
	return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext c) {
	GUARD;
	sets++;
	current = c, generation = c ? c->generation : 0;
	return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
	IN;
	if (flags || !PEERS) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (current->peers >> peer->device & 1) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	current->peers |= 1u << peer->device;
	return CUDA_SUCCESS;
}

static int within(const void *p, size_t n, int device) {
	for (struct block *b = blocks; b; b = b->next)
		if (b->device == device && (char *)p >= b->p && (char *)p + n <= b->p + b->n) return 1;
	return 0;
}
#define ON(p, n, d) if (!within((void *)(p), n, d)) return CUDA_ERROR_INVALID_VALUE

CUresult cuMemGetInfo(size_t *f, size_t *t) { IN; return *t = MEMORY, *f = MEMORY - used[current->device], CUDA_SUCCESS; }
CUresult cuMemAlloc(CUdeviceptr *p, size_t n) {
	IN;
	if (n == 0) return CUDA_ERROR_INVALID_VALUE;
	if (used[current->device] + n > MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
	used[current->device] += n;
	return allocate((void **)p, n, current->device);
}
CUresult cuMemFree(CUdeviceptr p) { IN; return run_all(), release((void *)p, current->device); }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned int flags) { IN; return flags != CU_MEMHOSTALLOC_PORTABLE ? CUDA_ERROR_INVALID_VALUE : allocate(p, n, -1); }
CUresult cuMemFreeHost(void *p) { IN; return run_all(), release(p, -1); }

CUresult cuStreamCreate(CUstream *s, unsigned int flags) {
	IN;
	if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
	*s = malloc(sizeof **s);
	**s = (struct CUstream_st){current, NULL, &(*s)->first, streams};
	streams = *s;
	return CUDA_SUCCESS;
}
// As a real one does, it returns at once: what work is left is done later, with that of all.
CUresult cuStreamDestroy(CUstream s) { OF(s); return s->ctx = NULL, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { OF(s); return run(s, NULL, 0), CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream s) { OF(s); return s->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags) {
	OF(s);
	if (flags || !e) return CUDA_ERROR_INVALID_VALUE;
	return add(s, (struct op){.kind = WAIT, .event = e, .ticket = e->recorded});
}
CUresult cuCtxSynchronize(void) { IN; return run_all(), CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent *e, unsigned int flags) { IN; return (void)flags, *e = calloc(1, sizeof **e), (*e)->ctx = current, CUDA_SUCCESS; }
CUresult cuEventDestroy(CUevent e) { OF(e); return run_all(), free(e), CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent e, CUstream s) {
	OF(e);
	if (s->ctx != current) return CUDA_ERROR_INVALID_HANDLE;
	e->on = s;
	return add(s, (struct op){.kind = RECORD, .event = e, .ticket = ++e->recorded});
}
CUresult cuEventSynchronize(CUevent e) { OF(e); if (e->on) run(e->on, e, e->recorded); return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent e) { OF(e); return e->fired < e->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { OF(a); return *ms = (float)(b->fired - a->fired) + 0.5f, CUDA_SUCCESS; }

CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *p, size_t n, CUstream s) {
	OF(s); ON(d, n, current->device);
	return add(s, (struct op){.kind = COPY, .dst = (char *)d, .src = p, .n = n});
}
CUresult cuMemcpyDtoHAsync(void *p, CUdeviceptr d, size_t n, CUstream s) {
	OF(s); ON(d, n, current->device);
	return add(s, (struct op){.kind = COPY, .dst = p, .src = (char *)d, .n = n});
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr p, size_t n, CUstream s) {
	OF(s); ON(d, n, current->device); ON(p, n, current->device);
	return add(s, (struct op){.kind = COPY, .dst = (char *)d, .src = (char *)p, .n = n});
}
CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext to, CUdeviceptr p, CUcontext from, size_t n, CUstream s) {
	OF(s); ON(d, n, to->device); ON(p, n, from->device);
	return add(s, (struct op){.kind = COPY, .dst = (char *)d, .src = (char *)p, .n = n});
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
	OF(s); ON(d, n, current->device);
	return add(s, (struct op){.kind = FILL8, .dst = (char *)d, .value = v, .n = n});
}
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned int v, size_t n, CUstream s) {
	OF(s); ON(d, 4 * n, current->device);
	return add(s, (struct op){.kind = FILL32, .dst = (char *)d, .value = v, .n = n});
}

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned int n, CUjit_option *o, void **values) {
	IN;
	const char *bad = strstr(image, "garbage");
	for (unsigned int i = 0; bad && i < n; i++)
		if (o[i] == CU_JIT_ERROR_LOG_BUFFER) snprintf(values[i], 64, "ptxas: error at %.7s\n", bad);
	if (bad) return CUDA_ERROR_INVALID_PTX;
	*m = malloc(sizeof **m);
	**m = (struct CUmod_st){current, strdup(image)};
	return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule m) { OF(m); return free(m->text), free(m), CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	OF(m);
	if (strcmp(name, "store") || !strstr(m->text, name)) return CUDA_ERROR_NOT_FOUND;
	*f = calloc(1, sizeof **f);
	**f = (struct CUfunc_st){current, 48 << 10};
	return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { OF(f); return *v = 10 + (int)a, CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
	OF(f);
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
	f->shared = v;
	return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int block, size_t shared) { OF(f); return *n = 2048 / block - (int)(shared >> 16), CUDA_SUCCESS; }

// store(u64 to, u32 value): each thread of the grid has a word.
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra) {
	OF(s);
	if (f->ctx != current) return CUDA_ERROR_INVALID_HANDLE;
	if (params || !extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END) return CUDA_ERROR_INVALID_VALUE;
	if ((int)shared > f->shared || bx * by * bz > 1024 || *(size_t *)extra[3] != 12) return CUDA_ERROR_INVALID_VALUE;
	char *to;
	unsigned value;
	memcpy(&to, extra[1], 8), memcpy(&value, (char *)extra[1] + 8, 4);
	size_t n = (size_t)gx * gy * gz * bx * by * bz;
	if (!within(to, 4 * n, current->device)) {
		snprintf(findings + strlen(findings), sizeof findings - strlen(findings), "store writes %zu words\n", n);
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	return add(s, (struct op){.kind = STORE, .dst = to, .value = value, .n = n});
}
