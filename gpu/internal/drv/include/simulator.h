// What a simulated CUDA driver exports beside the driver's own functions. A library that
// has lockstep_simulator is a simulator, whatever its file is called.
#ifndef LOCKSTEP_SIMULATOR_H
#define LOCKSTEP_SIMULATOR_H
#include <cuda.h>
#ifdef __cplusplus
extern "C" {
#endif

// The version of this header, which lockstep_simulator returns.
#define LOCKSTEP_SIMULATOR_VERSION 1
int lockstep_simulator(void);

// Sets how many devices there are. It is called before cuInit, once.
CUresult lockstep_simulator_devices(int count);

// All that kernels and the host did wrong so far, one finding a line. The text is the
// calling thread's until its next call. A simulator need not have this.
const char *lockstep_simulator_findings(void);

// Why cuInit failed, in words; empty where it did not. CUDA_ERROR_INVALID_VALUE of cuInit(0)
// is then a variable of the environment. A simulator need not have this.
const char *lockstep_simulator_refusal(void);

#ifdef __cplusplus
}
#endif
#endif
