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
// A loop that spent most of its time waiting for an interrupted worker: others want the cores, so for some multiple of
// that time loops run on their callers alone.
constexpr int64_t kLongWaitNs = 50000, kMaxAloneNs = 10000000;
constexpr int64_t kAlonePerWait = 4;

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

// A participant's share of a job's indices, and the participant's place in it.
struct alignas(64) Seat {
  Job* job;
  int64_t end, piece;
  std::atomic<int64_t> next;
};

struct Job {
  InlayTask task;
  void* closure;
  Seat* seats;
  int num_seats;
  static constexpr uint32_t kCallerSleeps = 1u << 31;
  std::atomic<uint32_t> finished{0};  // workers that will not touch the job any more

  // Own share first: the same thread meets the same indices in every loop, whose data its caches hold.
  void Work(int self) {
    for (int i = 0; i < num_seats; ++i) {
      Seat& seat = seats[self + i < num_seats ? self + i : self + i - num_seats];
      while (seat.next.load(std::memory_order_relaxed) < seat.end) {
        const int64_t begin = seat.next.fetch_add(seat.piece, std::memory_order_relaxed);
        if (begin >= seat.end) break;
        task(closure, begin, std::min(begin + seat.piece, seat.end), self);
      }
    }
  }

  // How long it slept, in ns.
  int64_t WaitFor(uint32_t joined, int64_t spin_ns) {
    auto done = [&] { return (finished.load(std::memory_order_acquire) & ~kCallerSleeps) == joined; };
    if (SpinUntil(done, spin_ns)) return 0;
    const int64_t begin = NowNs();
    finished.fetch_or(kCallerSleeps, std::memory_order_acq_rel);
    while (!done()) {
      const uint32_t seen = finished.load(std::memory_order_acquire);
      if ((seen & ~kCallerSleeps) != joined) FutexWait(&finished, seen);
    }
    return NowNs() - begin;
  }
};

Seat* const kTaken = reinterpret_cast<Seat*>(1);
Seat* const kStop = reinterpret_cast<Seat*>(2);

struct alignas(64) Worker {
  std::atomic<Seat*> seat{nullptr};  // null: free; kTaken: at work; else offered, until the worker takes it
  enum State : uint32_t { kAwake, kAsleep, kBeingWoken };
  std::atomic<uint32_t> state{kAwake};
  Placement placement;  // of who wakes the worker while that is being woken, else the worker's
  pthread_t thread;
  pid_t id = 0;  // of the thread, set by itself

  bool Offer(Seat* offered) {
    Seat* expected = nullptr;
    if (seat.load(std::memory_order_relaxed) != nullptr) return false;
    if (!seat.compare_exchange_strong(expected, offered)) return false;
    uint32_t asleep = kAsleep;
    if (state.load() == kAsleep && state.compare_exchange_strong(asleep, kBeingWoken)) {
      placement.KeepOff(sched_getcpu(), id);
      state.store(kAwake);
      FutexWake(&state);
    }
    return true;
  }
  // There is no thread any more.
  void Reset() {
    seat = nullptr;
    state = kAwake;
    placement = {};
  }
  bool TakeBack(Seat* offered) { return seat.compare_exchange_strong(offered, nullptr); }

  bool IsOffered() const { return seat.load() != nullptr; }

  // Until it is offered a seat.
  void Sleep() {
    state.store(kAsleep);
    while (uint32_t now = state.load()) {
      if (now == kAsleep && IsOffered() && state.compare_exchange_strong(now, kAwake)) break;
      if (now != kAwake) FutexWait(&state, now);
    }
    placement.Allow(0);
  }

  void Loop() {
    ScopedFloatMode mode;
    id = static_cast<pid_t>(syscall(SYS_gettid));
    while (true) {
      if (!SpinUntil([&] { return IsOffered(); }, IfCoresSuffice(NumPoolWorkers() + 1, kWorkerSpinNs))) Sleep();
      Seat* mine = seat.load(std::memory_order_acquire);
      if (mine == kStop) return;
      if (mine == nullptr || !seat.compare_exchange_strong(mine, kTaken)) continue;
      Job* job = mine->job;
      job->Work(static_cast<int>(mine - job->seats));
      // Free before the caller goes on: it may offer the next seat at once. From `finished` on the job may be gone (a
      // wake-up that comes too late meets nobody).
      seat.store(nullptr, std::memory_order_release);
      if (job->finished.fetch_add(1, std::memory_order_acq_rel) & Job::kCallerSleeps) FutexWake(&job->finished);
    }
  }
};

class Pool {
 public:
  void Run(int num_threads, int64_t n, InlayTask task, void* closure);
  int size() const { return size_.load(std::memory_order_acquire); }
  void Stop();

 private:
  void Grow(int size);
  static void* ThreadMain(void* worker);

  std::mutex mutex_;  // of starting and stopping
  std::atomic<int> size_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> alone_until_{0};  // kAlonePerWait
  bool handles_fork_ = false;
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
                     pool.size_ = 0;
                     pool.alone_until_ = 0;
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
    size_.fetch_add(1, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::Run(int num_threads, int64_t n, InlayTask task, void* closure) {
  const int64_t start = NowNs();
  if (start < alone_until_.load(std::memory_order_relaxed)) return task(closure, 0, n, 0);
  const int wanted = static_cast<int>(std::min<int64_t>({num_threads - 1, n - 1, kMaxWorkers}));
  if (size() < wanted) Grow(wanted);

  // Shares are for `wanted` helpers, found or not: so they do not depend on who is free.
  Seat seats[kMaxWorkers + 1];
  Job job{task, closure, seats, wanted + 1};
  const int64_t each = n / (wanted + 1), rest = n % (wanted + 1);
  int64_t begin = 0;
  for (int i = 0; i <= wanted; ++i) {
    const int64_t end = begin + each + (i < rest ? 1 : 0);
    seats[i].job = &job;
    seats[i].end = end;
    seats[i].piece = (end - begin + kPieces - 1) / kPieces;
    seats[i].next.store(begin, std::memory_order_relaxed);
    begin = end;
  }
  Worker* helpers[kMaxWorkers];
  int offered = 0;
  const int available = stopping_.load(std::memory_order_relaxed) ? 0 : size();
  for (int i = 0; i < available && offered < wanted; ++i) {
    if (workers_[i].Offer(&seats[offered + 1])) helpers[offered++] = &workers_[i];
  }
  job.Work(0);
  uint32_t joined = 0;
  for (int i = 0; i < offered; ++i) joined += helpers[i]->TakeBack(&seats[i + 1]) ? 0 : 1;
  if (joined == 0) return;
  const int64_t slept = job.WaitFor(joined, IfCoresSuffice(num_threads, kCallerSpinNs));
  if (slept < kLongWaitNs) return;
  const int64_t end = NowNs();
  if (2 * slept > end - start) alone_until_ = end + std::min(kAlonePerWait * slept, kMaxAloneNs);
}

void Pool::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  for (int i = 0; i < size_; ++i) {
    while (!workers_[i].Offer(kStop)) sched_yield();
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
