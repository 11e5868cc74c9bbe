// The threads of this process: where they may run, and whether they do.
#ifndef INLAY_SERVER_MEASURING_PROCESS_THREADS_H_
#define INLAY_SERVER_MEASURING_PROCESS_THREADS_H_

#include "absl/time/time.h"

namespace inlay::server {

// Pins every thread of this process, and those they start, to the last `num_threads` of the CPUs that it was given when
// it began (interrupts and daemons like the first ones better); to all of them where there are no more.
void PinToLastCpus(int num_threads);

// Waits until every thread but the caller sleeps, for at most `limit`. False: one still runs.
bool WaitForOtherThreadsToSleep(absl::Duration limit);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_PROCESS_THREADS_H_
