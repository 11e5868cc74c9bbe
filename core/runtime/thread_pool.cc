#include "core/runtime/thread_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "core/runtime/placement.h"
#include "core/runtime/threads.h"

namespace inlay::runtime {
namespace {

constexpr int kMaxWorkers = 255;
// A thread takes its share in so many pieces, so that one that comes late, or is interrupted, leaves the rest to
// others.
constexpr int64_t kPieces = 8;
// How long a worker looks out for the next loop before it sleeps: the gaps between the loops of one run. Waking it
// costs its caller 3 us and itself 5 to 50.
constexpr int64_t kWorkerSpinNs = 100000;
// How long a caller looks out for the last pieces before it sleeps, and so leaves its core to a worker that was
// interrupted in the middle of one. Longer than a piece of a convolution: being woken costs as much (20 us were 1 to 4%
// of ResNet-50 with two threads).
constexpr int64_t kCallerSpinNs = 100000;
// A loop that spent most of its time waiting for a worker that was interrupted: others want that worker's core, so for
// some multiple of that time loops do without it.
constexpr int64_t kLongWaitNs = 50000, kMaxAvoidedNs = 10000000;
constexpr int64_t kAvoidedPerWait = 4;
// A caller wakes no more workers than this before it begins; they wake the others.
constexpr int kCallerWakes = 2;

void FutexWait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

// Where there are more threads than CPUs, looking out takes time from those at work.
int64_t IfCoresSuffice(int threads, int64_t spin_ns) {
  static const int cpus = AvailableCpus();
  return threads <= cpus ? spin_ns : 0;
}

// Until done(), or `ns` are over: then false.
template <typename Done>
bool SpinUntil(const Done& done, int64_t ns) {
  if (done()) return true;
  if (ns <= 0) return false;
  const int64_t end = NowNs() + ns;
  do {
    for (int i = 0; i < 16; ++i) {
      Pause();
      if (done()) return true;
    }
  } while (NowNs() < end);
  return false;
}

struct Job;

// A participant's place in a loop: its share of the indices, and where it stands. What a loop costs is the way of lines
// from core to core: this one, filled by the caller, is all that a worker waits for, works by and is waited for by.
// (Two lines of room: processors fetch them in pairs.)
struct alignas(128) Seat {
  // A worker's: free or left, offered to it by a caller, taken by it; its caller sleeps; it will not touch the job any
  // more; its thread is to end.
  enum Phase : uint32_t { kFree, kOffered, kTaken, kCallerSleeps, kDone, kStop };
  std::atomic<uint32_t> phase{kFree};
  int32_t index;
  std::atomic<int64_t> next;
  int64_t end, piece;
  InlayTask task;
  void* closure;
  Job* job;

  bool IsOffered() const {
    const uint32_t now = phase.load();
    return now == kOffered || now == kStop;
  }
  bool Take() {
    uint32_t offered = kOffered;
    return phase.compare_exchange_strong(offered, kTaken);
  }
  // By the caller, unless the worker has come.
  void TakeBack() {
    uint32_t offered = kOffered;
    if (phase.load(std::memory_order_relaxed) == kOffered) phase.compare_exchange_strong(offered, kFree);
  }

  // Whether it is filled, which other seats' workers do not know; and not left.
  bool HasPieces() const {
    const uint32_t now = phase.load(std::memory_order_acquire);
    return now == kOffered || now == kTaken || now == kCallerSleeps;
  }
  void TakePieces(int32_t worker) {
    while (next.load(std::memory_order_relaxed) < end) {
      const int64_t begin = next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= end) break;
      task(closure, begin, std::min(begin + piece, end), worker);
    }
  }
};

struct Worker {
  Seat seat;
  // Seldom written, so that callers have them at hand.
  enum State : uint32_t { kAwake, kAsleep, kBeingWoken };
  std::atomic<uint32_t> state{kAwake};
  std::atomic<int64_t> avoided_until{0};  // kAvoidedPerWait
  Placement placement;                    // of who wakes the worker while that is being woken, else the worker's
  pthread_t thread;
  pid_t id = 0;  // of the thread, set by itself

  bool IsAsleep() const { return state.load() == kAsleep; }

  // For a loop whose caller is on that CPU.
  void Wake(int callers_cpu) {
    uint32_t asleep = kAsleep;
    if (!state.compare_exchange_strong(asleep, kBeingWoken)) return;
    placement.KeepOff(callers_cpu, sched_getcpu(), id);
    state.store(kAwake);
    FutexWake(&state);
  }

  // There is no thread any more.
  void Reset() {
    seat.phase = Seat::kFree;
    state = kAwake;
    avoided_until = 0;
    placement = {};
  }

  // Until it is offered a seat.
  void Sleep() {
    state.store(kAsleep);
    while (uint32_t now = state.load()) {
      if (now == kAsleep && seat.IsOffered() && state.compare_exchange_strong(now, kAwake)) break;
      if (now != kAwake) FutexWait(&state, now);
    }
    placement.Allow(0);
  }

  void Loop();
};

// One loop. Seat 0 is the caller's, seat i that of helpers[i - 1].
struct Job {
  Seat own;
  int num_helpers = 0;
  int cpu = -1;  // the caller's, where helpers are to be woken
  std::atomic<int> num_asleep{0}, next_to_wake{0};
  Worker* helpers[kMaxWorkers];
  uint8_t asleep[kMaxWorkers];  // of the helpers, when they were offered their seats

  Seat& seat(int i) { return i == 0 ? own : helpers[i - 1]->seat; }

  void Offer(int64_t n, InlayTask task, void* closure);
  // Own share first: the same thread meets the same indices in every loop, whose data its caches hold. Then those of
  // others: the caller has a look at all, a worker at some, so that where all come to their end together not each of
  // them waits for the lines of all.
  void Work(int self) {
    seat(self).TakePieces(self);
    const int seats = num_helpers + 1;
    for (int i = 1; i < seats; i = self == 0 ? i + 1 : 2 * i) {
      Seat& other = seat((self + i) % seats);
      if (&other == &own || other.HasPieces()) other.TakePieces(self);
    }
  }
  // Up to `most` of those asleep.
  void WakeHelpers(int most);
  // Until all that began are done.
  void Wait(int64_t start, int64_t spin_ns);
};

void Worker::Loop() {
  ScopedFloatMode mode;
  id = static_cast<pid_t>(syscall(SYS_gettid));
  while (true) {
    const bool slept =
        !SpinUntil([&] { return seat.IsOffered(); }, IfCoresSuffice(NumPoolWorkers() + 1, kWorkerSpinNs));
    if (slept) Sleep();
    if (seat.phase.load() == Seat::kStop) return;
    if (!seat.Take()) continue;
    if (slept) seat.job->WakeHelpers(kMaxWorkers);
    seat.job->Work(seat.index);
    // From then on the job may be gone, and the seat another's.
    if (seat.phase.exchange(Seat::kDone, std::memory_order_acq_rel) == Seat::kCallerSleeps) FutexWake(&seat.phase);
  }
}

void Job::Offer(int64_t n, InlayTask task, void* closure) {
  const int64_t each = n / (num_helpers + 1), rest = n % (num_helpers + 1);
  int64_t begin = 0;
  for (int i = 0; i <= num_helpers; ++i) {
    Seat& s = seat(i);
    s.index = i;
    s.next.store(begin, std::memory_order_relaxed);
    s.end = begin + each + (i < rest ? 1 : 0);
    s.piece = (s.end - begin + kPieces - 1) / kPieces;
    s.task = task;
    s.closure = closure;
    s.job = this;
    begin = s.end;
    if (i > 0) s.phase.store(Seat::kOffered, std::memory_order_release);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // either we see that a worker sleeps, or it sees its seat
  int sleepers = 0;
  for (int i = 0; i < num_helpers; ++i) {
    if (helpers[i]->IsAsleep()) asleep[sleepers++] = static_cast<uint8_t>(i);
  }
  if (sleepers == 0) return;
  cpu = sched_getcpu();
  num_asleep.store(sleepers, std::memory_order_release);
  WakeHelpers(kCallerWakes);
}

void Job::WakeHelpers(int most) {
  const int sleepers = num_asleep.load(std::memory_order_acquire);
  for (; most > 0 && next_to_wake.load(std::memory_order_relaxed) < sleepers; --most) {
    const int i = next_to_wake.fetch_add(1, std::memory_order_relaxed);
    if (i >= sleepers) return;
    Worker& helper = *helpers[asleep[i]];
    if (helper.seat.IsOffered()) helper.Wake(cpu);
  }
}

void Job::Wait(int64_t start, int64_t spin_ns) {
  for (int i = 0; i < num_helpers; ++i) helpers[i]->seat.TakeBack();
  for (int i = 0; i < num_helpers; ++i) {
    std::atomic<uint32_t>& phase = helpers[i]->seat.phase;
    auto done = [&] {
      const uint32_t now = phase.load(std::memory_order_acquire);
      return now == Seat::kDone || now == Seat::kFree;
    };
    if (SpinUntil(done, spin_ns)) continue;
    const int64_t asleep = NowNs();
    uint32_t taken = Seat::kTaken;
    phase.compare_exchange_strong(taken, Seat::kCallerSleeps, std::memory_order_acq_rel);
    while (!done()) FutexWait(&phase, Seat::kCallerSleeps);
    const int64_t awake = NowNs(), slept = awake - asleep;
    if (slept < kLongWaitNs || 2 * slept <= awake - start) continue;
    helpers[i]->avoided_until.store(awake + std::min(kAvoidedPerWait * slept, kMaxAvoidedNs),
                                    std::memory_order_relaxed);
  }
}

class Pool {
 public:
  void Run(int num_threads, int64_t n, InlayTask task, void* closure);
  int size() const { return size_.load(std::memory_order_acquire); }
  void Stop();

 private:
  static constexpr int kWordBits = 64, kWords = (kMaxWorkers + kWordBits - 1) / kWordBits;

  // A set of workers, a bit each.
  struct Workers {
    uint64_t words[kWords] = {};
  };

  void Grow(int size);
  static void* ThreadMain(void* worker);
  // Takes free workers as the job's helpers.
  Workers Recruit(int wanted, int64_t now, Job* job);
  void Release(const Workers& workers) {
    for (int w = 0; w < kWords; ++w) {
      if (workers.words[w] != 0) free_[w].fetch_or(workers.words[w], std::memory_order_release);
    }
  }

  std::mutex mutex_;  // of starting and stopping
  std::atomic<int> size_{0};
  bool stopping_ = false;
  bool handles_fork_ = false;
  alignas(128) std::atomic<uint64_t> free_[kWords] = {};
  Worker workers_[kMaxWorkers];
};

// Never destroyed: at exit, other threads may be in a run still.
Pool& ThePool() {
  alignas(Pool) static char memory[sizeof(Pool)];
  static Pool* const pool = new (memory) Pool;
  return *pool;
}

void* Pool::ThreadMain(void* worker) {
  static_cast<Worker*>(worker)->Loop();
  return nullptr;
}

void Pool::Grow(int size) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!handles_fork_) {
    handles_fork_ = true;
    pthread_atfork([] { ThePool().mutex_.lock(); }, [] { ThePool().mutex_.unlock(); },
                   [] {  // in the child, which has no workers
                     Pool& pool = ThePool();
                     for (Worker& worker : pool.workers_) worker.Reset();
                     for (auto& word : pool.free_) word = 0;
                     pool.size_ = 0;
                     pool.mutex_.unlock();
                   });
  }
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (size_ < std::min(size, kMaxWorkers) && !stopping_) {
    Worker& worker = workers_[size_];
    if (pthread_create(&worker.thread, nullptr, &ThreadMain, &worker) != 0) break;  // then with fewer
    pthread_setname_np(worker.thread, "inlay");
    free_[size_ / kWordBits].fetch_or(uint64_t{1} << size_ % kWordBits, std::memory_order_release);
    size_.fetch_add(1, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Pool::Workers Pool::Recruit(int wanted, int64_t now, Job* job) {
  Workers taken;
  for (int w = 0; w < kWords && job->num_helpers < wanted; ++w) {
    uint64_t all = free_[w].load(std::memory_order_relaxed);
    while (true) {
      int found = job->num_helpers;
      uint64_t take = 0;
      for (uint64_t rest = all; rest != 0 && found < wanted; rest &= rest - 1) {
        Worker& worker = workers_[w * kWordBits + __builtin_ctzll(rest)];
        if (worker.avoided_until.load(std::memory_order_relaxed) > now) continue;
        take |= rest & -rest;
        job->helpers[found++] = &worker;
      }
      if (take != 0 && !free_[w].compare_exchange_weak(all, all & ~take, std::memory_order_acquire)) continue;
      job->num_helpers = found;
      taken.words[w] = take;
      break;
    }
  }
  return taken;
}

void Pool::Run(int num_threads, int64_t n, InlayTask task, void* closure) {
  const int64_t start = NowNs();
  const int wanted = static_cast<int>(std::min<int64_t>({num_threads - 1, n - 1, kMaxWorkers}));
  if (size() < wanted) Grow(wanted);
  Job job;
  const Workers helpers = Recruit(wanted, start, &job);
  if (job.num_helpers == 0) return task(closure, 0, n, 0);
  job.Offer(n, task, closure);
  job.Work(0);
  job.Wait(start, IfCoresSuffice(num_threads, kCallerSpinNs));
  Release(helpers);
}

void Pool::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  for (int i = 0; i < size_; ++i) {
    const uint64_t bit = uint64_t{1} << i % kWordBits;
    while ((free_[i / kWordBits].fetch_and(~bit, std::memory_order_acquire) & bit) == 0) sched_yield();
    workers_[i].seat.phase.store(Seat::kStop);
    workers_[i].Wake(-1);
  }
  for (int i = 0; i < size_; ++i) {
    pthread_join(workers_[i].thread, nullptr);
    workers_[i].Reset();
  }
  size_ = 0;
  stopping_ = false;
}

// Before the code that the workers return to is unmapped.
struct StopAtUnload {
  ~StopAtUnload() { ThePool().Stop(); }
} stop_at_unload;

}  // namespace

void RunOnPool(int num_threads, int64_t n, InlayTask task, void* closure) {
  ThePool().Run(num_threads, n, task, closure);
}

int NumPoolWorkers() { return ThePool().size(); }

}  // namespace inlay::runtime
