#include "core/runtime/thread_pool.h"

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
#include <type_traits>

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
// Where no thread could be started.
constexpr int64_t kNextTryNs = 1000000000;
// For loops to end that other threads are in when the library is unloaded, or the process exits.
constexpr int64_t kStopNs = 1000000000;

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

std::atomic<int> available_cpus{0};  // known before the first worker starts

// Where there are more threads than CPUs, looking out takes time from those at work.
int64_t IfCoresSuffice(int threads, int64_t spin_ns) {
  return threads <= available_cpus.load(std::memory_order_relaxed) ? spin_ns : 0;
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
  enum Phase : uint32_t {
    kFree,          // never offered, or taken back
    kOffered,       // by a caller, who has recruited the worker
    kTaken,         // by the worker
    kCallerSleeps,  // until the worker is done
    kDone,          // the worker will not touch the job any more; until the next offer
    kStop,          // its thread is to end
  };
  std::atomic<uint32_t> phase{kFree};
  int32_t index = 0;
  std::atomic<int64_t> next{0};
  int64_t end = 0, piece = 0;
  InlayTask task = nullptr;
  void* closure = nullptr;
  Job* job = nullptr;
  int64_t done_at = 0;  // where the caller was seen to sleep

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

  // Whether it is filled, which other seats' workers do not know, and not exhausted: as its worker leaves it. No phase
  // of a loop before is seen here: who is in this loop has acquired what its caller released, who had waited for all of
  // that one.
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
  pthread_t thread{};
  pid_t id = 0;  // of the thread, set by itself

  bool IsAsleep() const { return state.load() == kAsleep; }

  // For a loop whose caller is on that CPU; false: there was no need.
  bool Wake(int callers_cpu) {
    uint32_t asleep = kAsleep;
    if (!state.compare_exchange_strong(asleep, kBeingWoken)) return false;
    placement.KeepOff(callers_cpu, sched_getcpu(), id);
    state.store(kAwake);
    FutexWake(&state);
    return true;
  }

  // There is no thread any more.
  void Reset() {
    seat.phase = Seat::kFree;
    state = kAwake;
    avoided_until = 0;
    placement = {};
  }

  // Until it is offered a seat: seen here after kAsleep is stored, or else Offer sees kAsleep (both sequentially
  // consistent, as Offer's fence is).
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
  // Own share first: while the same workers are free, the same thread meets the same indices in every loop, whose data
  // its caches hold. Then those of others: the caller has a look at all, a worker at some, so that where all come to
  // their end together not each of them waits for the lines of all; and where one of those has not come, at all too.
  void Work(int self) {
    seat(self).TakePieces(self);
    if (self == 0 && WokenAreLate()) WakeHelpers(kCallerWakes);
    const int seats = num_helpers + 1;
    bool looks_at_all = self == 0;
    const auto visit = [&](int i) {
      Seat& other = seat((self + i) % seats);
      if (&other == &own) return other.TakePieces(self);
      if (!other.HasPieces()) return;
      looks_at_all |= other.phase.load(std::memory_order_relaxed) == Seat::kOffered;
      other.TakePieces(self);
    };
    for (int i = 1; i < seats && self != 0; i *= 2) visit(i);
    for (int i = 1; i < seats && looks_at_all; ++i) visit(i);
  }
  // Up to `most` of those asleep.
  void WakeHelpers(int most);
  // Whether others sleep still, and none of the woken has come to wake them.
  bool WokenAreLate();
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
    if (seat.phase.load(std::memory_order_relaxed) == Seat::kCallerSleeps) seat.done_at = NowNs();
    // From the exchange on the job may be gone, and the seat another's, whose caller is woken once too often then.
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
    s.done_at = 0;
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
  while (most > 0 && next_to_wake.load(std::memory_order_relaxed) < sleepers) {
    const int i = next_to_wake.fetch_add(1, std::memory_order_relaxed);
    if (i >= sleepers) return;
    Worker& helper = *helpers[asleep[i]];
    if (helper.seat.IsOffered() && helper.Wake(cpu)) --most;
  }
}

bool Job::WokenAreLate() {
  const int sleepers = num_asleep.load(std::memory_order_relaxed), woken = next_to_wake.load(std::memory_order_relaxed);
  if (woken >= sleepers) return false;
  for (int i = 0; i < woken; ++i) {
    if (!helpers[asleep[i]]->seat.IsOffered()) return false;
  }
  return true;
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
    spin_ns = 0;  // once a loop
    const int64_t asleep = NowNs();
    uint32_t taken = Seat::kTaken;
    phase.compare_exchange_strong(taken, Seat::kCallerSleeps, std::memory_order_acq_rel);
    while (!done()) FutexWait(&phase, Seat::kCallerSleeps);
    // Not how long this thread then waited for a core itself.
    const int64_t done_at = helpers[i]->seat.done_at, awake = done_at != 0 ? done_at : NowNs(), slept = awake - asleep;
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
  std::atomic<int64_t> next_try_{0};  // to start more, after a failure
  bool stopping_ = false;             // for good: what runs after this has its caller alone
  bool handles_fork_ = false;
  alignas(128) std::atomic<uint64_t> free_[kWords] = {};
  Worker workers_[kMaxWorkers];
};

// Never destroyed: at exit, other threads may be in a run still. All zero before its first use, with no code to run.
static_assert(std::is_trivially_destructible_v<Pool>);
Pool the_pool;

void* Pool::ThreadMain(void* worker) {
  static_cast<Worker*>(worker)->Loop();
  return nullptr;
}

void Pool::Grow(int size) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!handles_fork_) {
    handles_fork_ = true;
    pthread_atfork([] { the_pool.mutex_.lock(); }, [] { the_pool.mutex_.unlock(); },
                   [] {  // in the child, which has no workers
                     for (int i = 0; i < the_pool.size_; ++i) the_pool.workers_[i].Reset();
                     for (auto& word : the_pool.free_) word = 0;
                     the_pool.size_ = 0;
                     the_pool.next_try_ = 0;
                     the_pool.mutex_.unlock();
                   });
  }
  if (available_cpus == 0) available_cpus = AvailableCpus();
  // Signals are for the threads of the program, but for those of a worker's own faults: a crash handler wants them.
  sigset_t others, before;
  sigfillset(&others);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&others, fault);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  while (size_ < std::min(size, kMaxWorkers) && !stopping_) {
    Worker& worker = workers_[size_];
    if (pthread_create(&worker.thread, nullptr, &ThreadMain, &worker) != 0) {  // then with fewer
      next_try_ = NowNs() + kNextTryNs;
      break;
    }
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
  if (size() < wanted && start >= next_try_.load(std::memory_order_relaxed)) Grow(wanted);
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
  const int64_t end = NowNs() + kStopNs;
  for (int i = 0; i < size_; ++i) {
    const uint64_t bit = uint64_t{1} << i % kWordBits;
    while ((free_[i / kWordBits].fetch_and(~bit, std::memory_order_acquire) & bit) == 0) {
      if (NowNs() > end) return;  // exit() within a loop, from a signal handler
      sched_yield();
    }
    workers_[i].seat.phase.store(Seat::kStop);
    workers_[i].Wake(-1);
  }
  for (int i = 0; i < size_; ++i) {
    pthread_join(workers_[i].thread, nullptr);
    workers_[i].Reset();
  }
  size_ = 0;
}

// Before the code that the workers return to is unmapped.
struct StopAtUnload {
  ~StopAtUnload() { the_pool.Stop(); }
} stop_at_unload;

}  // namespace

void RunOnPool(int num_threads, int64_t n, InlayTask task, void* closure) noexcept {
  the_pool.Run(num_threads, n, task, closure);
}

int NumPoolWorkers() { return the_pool.size(); }

}  // namespace inlay::runtime
