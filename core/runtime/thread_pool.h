// The worker threads of this library (an exported library, or the daemon): whoever runs a parallel loop borrows those
// that are free.
//
// A loop never waits for a worker that has not begun: its caller does the work of all, piece by piece, and takes the
// seat back. So where another process holds a core, a loop takes as long as on one thread, and not until the kernel
// lets the worker run. Several loops may run at once: each gets what workers are free, perhaps none.
// Workers are started when a loop first wants them, wait for the next loop a moment awake and then asleep, and end
// when the library is unloaded. A child process after fork() starts its own.
#ifndef INLAY_CORE_RUNTIME_THREAD_POOL_H_
#define INLAY_CORE_RUNTIME_THREAD_POOL_H_

#include <cstdint>

#include "core/runtime/kernel_abi.h"

namespace inlay::runtime {

// Runs `task` over [0, n), n >= 1, on the caller and at most num_threads - 1 workers, in several contiguous ranges a
// thread. Any thread, but not from within a task. A task neither throws (the program ends) nor forks.
void RunOnPool(int num_threads, int64_t n, InlayTask task, void* closure) noexcept;

// How many workers there are, busy or not. For tests.
int NumPoolWorkers();

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_THREAD_POOL_H_
