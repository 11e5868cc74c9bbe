// RequestWatcher: turns a client that went away, a deadline that passed, or an upload that stalled into the
// cancellation of the work under it. gRPC's synchronous API tells of these only when asked, so one thread asks for all
// requests.
//
// Thread-safe. A Watch ends when it is destroyed, which must be before its ServerContext is.
#ifndef INLAY_SERVER_SERVICE_REQUEST_WATCHER_H_
#define INLAY_SERVER_SERVICE_REQUEST_WATCHER_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/cancellation.h"

namespace inlay::server {

class RequestWatcher {
 public:
  RequestWatcher();
  ~RequestWatcher();

  class Watch {
   public:
    Watch(RequestWatcher* watcher, int64_t id) : watcher_(watcher), id_(id) {}
    ~Watch() { watcher_->Remove(id_); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    // Progress on a stream: puts off its stall limit.
    void Touch();

   private:
    RequestWatcher* watcher_;
    int64_t id_;
  };

  // Cancels `token` (may be null) when the call is over for its client. TryCancel()s a call whose deadline has passed,
  // and with a stall limit one that was not touched for so long.
  std::unique_ptr<Watch> Add(grpc::ServerContext* context, CancelToken* token,
                             absl::Duration stall_limit = absl::InfiniteDuration());

 private:
  struct Entry {
    grpc::ServerContext* context;
    CancelToken* token;
    absl::Duration stall_limit;
    absl::Time last_progress;
  };

  void Remove(int64_t id);
  void Touch(int64_t id);
  void Loop();
  void CheckAll();

  absl::Mutex mutex_;
  std::map<int64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_REQUEST_WATCHER_H_
