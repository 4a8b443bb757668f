// Package gpu runs kernels on GPUs by the CUDA driver: devices, memory, streams, events,
// modules of PTX and the kernels in them. It computes nothing itself.
//
// What it says about devices and how they are chosen (Choice, Info, UnavailableError) is
// there in every build. All else has the build tag cuda, needs a C compiler, and finds the
// driver when Open is called: a program that has it starts on any machine.
//
// A simulated GPU runs the same kernels without one. It is used where it was chosen by name
// alone, never because there is no other, and everything of it says so (Info.Simulated).
//
// Every method may be called by any goroutine. What was made is freed by its Free or Close,
// once; nothing is freed by a finalizer. Device.Close reports what was not.
package gpu
