// Package sim holds a simulated CUDA driver, in C++ (src), and its tests. The driver is a
// library, bin/libcuda-sim.so, which make build-sim makes with g++ alone: it exports
// CUDA's driver API and interprets the PTX text that it is given, a warp of 32 lanes at a
// time, on as many simulated devices as it is asked for.
//
// It is there to prove kernels and the code that drives them where there is no GPU, so it
// is strict rather than fast. Everything a program may not rely on it does not get:
// streams run only when something waits for them, and each access to memory is checked.
//
// # What it computes
//
// Instructions whose result is defined to the bit, as sm_80 has them: a NaN that an
// operation makes is 0x7fffffff, subnormal numbers are kept unless .ftz is given.
// Whatever else it does not know, or would have to approximate (ex2.approx, atomic
// addition of floats), is refused when the module is loaded: CUDA_ERROR_INVALID_PTX, and
// the log names line and instruction.
//
// # What it finds
//
// A finding is one line of lockstep_simulator_findings:
//
//	race kernel=transpose at=transpose.cu:14 ptx=88 block=0,0,0 thread=33,0,0 device=0: reads shared memory at 0x84, which thread 1,0,0 has written with no barrier between
//
// Its first word is the class: out-of-bounds, misaligned, uninitialised, race,
// divergent-barrier, divergent-shuffle, use-after-free, other-device, host-access, leak,
// trap, timeout, host-memory. The launch's error is that of a driver (CUDA_ERROR_ILLEGAL_ADDRESS,
// CUDA_ERROR_MISALIGNED_ADDRESS, else CUDA_ERROR_ASSERT or CUDA_ERROR_LAUNCH_FAILED),
// comes when something waits, and stays with the context.
//
// Not found are: accesses of blocks that run at the same moment on two threads, where
// each overwrites the other's stamp (LOCKSTEP_SIM_THREADS=1 is exact); races among more
// than 1,023 barriers of a block; races with a warp that takes no part in a barrier of some
// of a block's warps, which counts as one of all; races with what was queued later but ran
// more than 4,096 operations before; races in memory of a peer (two and two devices are
// joined: 0 and 1, 2 and 3), where what was not waited for has not been written; reads of
// pinned memory by the host while a copy to it is under way, which get bytes of 0xff
// instead; anything about time or the memory model
// beyond data races. A lane that shuffles up or down past the lanes that take part gets
// 0xffffffff and no finding, as sums of fewer lanes than a warp do so; other shuffles get
// one. Blocks that order themselves by atomics within a launch are reported as a race: no
// kernel here does.
//
// # Environment
//
// A value that is none makes cuInit fail, and lockstep_simulator_refusal says what is wrong
// with which variable; as it does where a device's address space cannot be reserved, which
// is ten times its memory.
//
//	LOCKSTEP_SIM_DEVICES  how many devices, from 1 to 16 (2)
//	LOCKSTEP_SIM_MEMORY   bytes of each, with K, M or G, from 1M to 64G (2G)
//	LOCKSTEP_SIM_THREADS  threads that execute blocks, from 1 to 256 (the processors)
//	LOCKSTEP_SIM_CHECKS   all or none: only what keeps the process alive is checked (all)
//	LOCKSTEP_SIM_ISA      at most generic, avx2 or avx512 (the best there is)
//	LOCKSTEP_SIM_BUDGET   instructions that a warp may execute (2^36)
//	LOCKSTEP_SIM_QUIET    1: findings are not written to standard error (0)
package sim
