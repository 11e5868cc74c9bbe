// Parallel loops on libgomp's threads, for modules with a library in them that brings libgomp (oneDNN).
//
// In the archive of the artifact runtime as a member of its own: ParallelFor refers to it weakly, and the linker asks
// for it (--undefined) where a manifest requires libgomp, so that other artifacts need no libgomp.
#ifndef INLAY_CORE_RUNTIME_OPENMP_H_
#define INLAY_CORE_RUNTIME_OPENMP_H_

#include <cstdint>

#include "core/runtime/kernel_abi.h"

extern "C" {

// RunOnPool on libgomp's team of the calling thread.
void inlay_openmp_parallel_for(int num_threads, int64_t n, InlayTask task, void* closure);

// Wakes the calling thread's team, if that may be asleep, beside the caller and not on its CPU (placement.h). For the
// beginning of a run: libgomp itself, whose caller then waits for a worker that waits for its CPU, takes 5 ms.
void inlay_openmp_wake(int num_threads);

// Keeps libgomp in the process for good: its idle threads would return into unmapped code if unloading the last
// exported library unloaded it too. Idempotent.
void inlay_openmp_pin();
}

#endif  // INLAY_CORE_RUNTIME_OPENMP_H_
