// SIGTERM and SIGINT as something to wait for.
#ifndef INLAY_SERVER_SIGNALS_H_
#define INLAY_SERVER_SIGNALS_H_

#include <signal.h>
#include <time.h>

#include "absl/time/time.h"

namespace inlay::server {

inline sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Call before any thread is started: then only WaitForStopSignal sees them. A client that closes its socket while we
// write must not end us: SIGPIPE is ignored.
inline void BlockStopSignals() {
  sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

// Whether one came within `timeout`.
inline bool WaitForStopSignal(absl::Duration timeout) {
  sigset_t set = StopSignals();
  timespec spec = absl::ToTimespec(timeout);
  return sigtimedwait(&set, nullptr, &spec) > 0;
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_SIGNALS_H_
