// Which cores this process runs on.
#ifndef INLAY_SERVER_MEASURING_AFFINITY_H_
#define INLAY_SERVER_MEASURING_AFFINITY_H_

namespace inlay::server {

// Pins every thread of this process, and those they start, to the last `num_threads` of the CPUs that it was given when
// it began (interrupts and daemons like the first ones better); to all of them where there are no more.
void PinToLastCpus(int num_threads);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_AFFINITY_H_
