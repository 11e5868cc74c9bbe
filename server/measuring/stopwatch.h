// Stopwatch: how long a run takes, whoever else wants the core.
//
// By the steady clock; where the kernel took the core from the calling thread meanwhile, by that thread's CPU time, and
// only if all work is the thread's own. So an undisturbed run is timed as a user would, and one that another process
// interrupted does not count the time slices (milliseconds each) that the other had.
#ifndef INLAY_SERVER_MEASURING_STOPWATCH_H_
#define INLAY_SERVER_MEASURING_STOPWATCH_H_

#include <sys/resource.h>
#include <time.h>

#include <algorithm>

namespace inlay::server {

class Stopwatch {
 public:
  // `own_work`: the calling thread does all the work.
  explicit Stopwatch(bool own_work) : own_work_(own_work) {
    if (own_work_) {
      interruptions_ = Interruptions();
      cpu_us_ = Microseconds(CLOCK_THREAD_CPUTIME_ID);
    }
    wall_us_ = Microseconds(CLOCK_MONOTONIC);
  }

  // Microseconds since the construction.
  double Elapsed() const {
    const double wall = Microseconds(CLOCK_MONOTONIC) - wall_us_;
    if (!own_work_) return wall;
    const double cpu = Microseconds(CLOCK_THREAD_CPUTIME_ID) - cpu_us_;
    return Interruptions() == interruptions_ ? wall : std::min(wall, cpu);
  }

 private:
  static double Microseconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
  }
  static long Interruptions() {  // NOLINT(google-runtime-int): the kernel's type
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }

  const bool own_work_;
  long interruptions_ = 0;  // NOLINT(google-runtime-int)
  double cpu_us_ = 0, wall_us_ = 0;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_STOPWATCH_H_
