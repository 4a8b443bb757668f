//go:build cuda

#include "lazy.h"
#include <cuda.h>
#include <dlfcn.h>
#include <simulator.h>
#include <stdio.h>

static void *library;

// gorgonia.org/cu calls cuInit when a program that has it starts, and ends the program
// where that fails. So this one always succeeds; drv_open calls the library's.
CUresult cuInit(unsigned int flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

// refusal is why a simulator did not start, if it says so.
static void refusal(void *lib, char *why, size_t size) {
	const char *(*call)(void) = dlsym(lib, "lockstep_simulator_refusal");
	const char *text = call ? call() : NULL;
	if (text) snprintf(why, size, "%s", text);
}

static int start(void *lib, int devices, int *result) {
	int (*version)(void) = dlsym(lib, "lockstep_simulator");
	if (version && !devices) return DRV_IS_SIMULATOR;
	if (devices) {
		CUresult (*set)(int) = dlsym(lib, "lockstep_simulator_devices");
		if (!version || !set || version() != LOCKSTEP_SIMULATOR_VERSION) return DRV_NO_SIMULATOR;
		if ((*result = set(devices)) != CUDA_SUCCESS) return DRV_INIT_FAILED;
	}
	CUresult (*init)(unsigned int) = dlsym(lib, "cuInit");
	*result = init ? init(0) : CUDA_ERROR_NOT_FOUND;
	return *result == CUDA_SUCCESS ? DRV_OPEN : DRV_INIT_FAILED;
}

int drv_open(const char *path, int devices, int *result, char *why, size_t size) {
	*result = CUDA_SUCCESS;
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *e = dlerror();
		snprintf(why, size, "%s", e ? e : "dlopen failed");
		return DRV_NO_LIBRARY;
	}
	int state = start(lib, devices, result);
	if (state == DRV_OPEN) __atomic_store_n(&library, lib, __ATOMIC_RELEASE);
	else if (state == DRV_INIT_FAILED) refusal(lib, why, size); // it stays: one that began to start has threads of its own
	else dlclose(lib);
	return state;
}

void *drv_find(void **found, const char *name) {
	void *f = __atomic_load_n(found, __ATOMIC_ACQUIRE);
	void *lib = f ? NULL : __atomic_load_n(&library, __ATOMIC_ACQUIRE);
	if (lib && (f = dlsym(lib, name))) __atomic_store_n(found, f, __ATOMIC_RELEASE);
	return f;
}

const char *drv_findings(void) {
	static void *found;
	const char *(*call)(void) = drv_find(&found, "lockstep_simulator_findings");
	return call ? call() : NULL;
}

CUresult drv_missing(void) {
	return __atomic_load_n(&library, __ATOMIC_ACQUIRE) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;
}
