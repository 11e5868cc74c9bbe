// What every kind of worker process does with its pipes: answers WorkerRequests from standard input, in frames
// (frame.h), on standard output, until its input ends.
#ifndef INLAY_SERVER_WORKER_WORKER_LOOP_H_
#define INLAY_SERVER_WORKER_WORKER_LOOP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace inlay::server {

// Bounds the address space of this process: `bytes` over what it has now. 0: no limit.
void LimitMemory(int64_t bytes);

// Answers requests one after the other; returns the process's exit code. `work` fills in the response's answer; its
// status, the time it took and the memory are added here. What anything prints from now on goes to standard error.
// Nothing is recovered: a crash is a crash, and whoever started the process looks to that.
int ServeRequests(int64_t memory_bytes,
                  const std::function<absl::Status(const proto::WorkerRequest&, proto::WorkerResponse*)>& work);

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_LOOP_H_
