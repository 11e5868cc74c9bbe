// Where threads run that are about to be woken. Linux likes to wake a thread on the CPU of who wakes it, and then
// leaves both there for milliseconds: always where the other CPUs look busy though they are idle, as a virtual
// machine's halted ones do. So pools wake their workers with the caller's CPU forbidden, and allow it again once they
// are awake.
#ifndef INLAY_CORE_RUNTIME_PLACEMENT_H_
#define INLAY_CORE_RUNTIME_PLACEMENT_H_

#include <sched.h>
#include <sys/types.h>

#include <initializer_list>

namespace inlay::runtime {

// Of one thread. By one thread at a time.
class Placement {
 public:
  // Before waking `thread`: off the caller's CPU, and off that of who wakes it, if others are left. Where that is not
  // allowed, or leaves no CPU, the kernel has its way.
  void KeepOff(int callers_cpu, int wakers_cpu, pid_t thread) {
    if (sched_getaffinity(thread, sizeof(allowed_), &allowed_) != 0) return;
    cpu_set_t others = allowed_;
    for (int cpu : {callers_cpu, wakers_cpu}) {
      cpu_set_t fewer = others;
      if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &fewer);
      if (CPU_COUNT(&fewer) > 0) others = fewer;
    }
    if (CPU_EQUAL(&others, &allowed_)) return;
    is_kept_off_ = sched_setaffinity(thread, sizeof(others), &others) == 0;
  }
  // When it is awake: what was allowed before.
  void Allow(pid_t thread) {
    if (is_kept_off_) sched_setaffinity(thread, sizeof(allowed_), &allowed_);
    is_kept_off_ = false;
  }

 private:
  bool is_kept_off_ = false;
  cpu_set_t allowed_{};
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_PLACEMENT_H_
