// How the trampolines find the driver.
#ifndef LOCKSTEP_LAZY_H
#define LOCKSTEP_LAZY_H
#include <cuda.h>

// What became of opening a library.
enum {
	DRV_OPEN,        // it is open, and cuInit succeeded
	DRV_NO_LIBRARY,  // it cannot be loaded
	DRV_IS_SIMULATOR, // it is a simulator, and a driver was asked for
	DRV_NO_SIMULATOR, // it is none, and a simulator was asked for
	DRV_INIT_FAILED, // its cuInit, whose result is told, failed
};

// drv_open loads a library, and starts it where it is what was asked for: a driver where
// devices is 0, else a simulator with so many. Where it fails, why says what the loader or
// the simulator says of that, and may be empty. It must not be called by two threads at
// once, nor again after it succeeded.
int drv_open(const char *path, int devices, int *result, char *why, size_t size);

// drv_find gives the function of that name in the library that is open, and keeps it in
// *found; null where there is none.
void *drv_find(void **found, const char *name);

// drv_findings is what the simulator that is open found wrong; null where none is, or it
// does not say.
const char *drv_findings(void);

// drv_missing is the result of a function that was not found.
CUresult drv_missing(void);
#endif
