#include "server/service/handle_table.h"

#include <openssl/rand.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace inlay::server {
namespace {

// Unguessable, so that a handle is also the right to use it.
absl::StatusOr<std::string> NewHandle() {
  unsigned char random[16];
  if (RAND_bytes(random, sizeof(random)) != 1) return absl::InternalError("no random numbers for a handle");
  return absl::StrCat("jit-", absl::BytesToHexString({reinterpret_cast<char*>(random), sizeof(random)}));
}

}  // namespace

HandleTable::HandleTable(Options options) : options_(options), expirer_([this] { ExpireLoop(); }) {}

HandleTable::~HandleTable() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  expirer_.join();
}

absl::Status HandleTable::CheckRoom(int64_t expected_bytes) {
  std::vector<Entry> dropped;  // destroyed after the lock is released: unloading takes a while
  absl::MutexLock lock(&mutex_);
  DropExpired(&dropped);
  const int64_t used = TotalLocked();
  if (used + expected_bytes <= options_.max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("loaded modules take ", used, " of ", options_.max_bytes,
                                                   " bytes and this one needs ", expected_bytes,
                                                   ": unload a handle, or raise jit_memory_bytes"));
}

absl::StatusOr<std::string> HandleTable::Add(const Digest& executable, std::shared_ptr<const jit::LoadedModule> module,
                                             absl::Duration idle_expiry) {
  const int64_t bytes = module->memory_bytes();
  absl::Status room = CheckRoom(bytes);
  if (!room.ok()) return room;
  absl::StatusOr<std::string> handle = NewHandle();
  if (!handle.ok()) return handle;
  Entry entry;
  entry.executable = executable;
  entry.module = std::move(module);
  entry.bytes = bytes;
  entry.idle_expiry = idle_expiry > absl::ZeroDuration() ? idle_expiry : options_.idle_expiry;
  entry.last_used = absl::Now();
  absl::MutexLock lock(&mutex_);
  entries_[*handle] = std::move(entry);
  return handle;
}

absl::StatusOr<std::shared_ptr<const jit::LoadedModule>> HandleTable::Get(const std::string& handle) {
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(handle);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("no handle '", handle, "': unloaded, expired, or of another daemon"));
  }
  found->second.last_used = absl::Now();
  ++found->second.runs;
  return found->second.module;
}

absl::Status HandleTable::Remove(const std::string& handle) {
  Entry removed;
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(handle);
  if (found == entries_.end()) return absl::NotFoundError(absl::StrCat("no handle '", handle, "'"));
  removed = std::move(found->second);
  entries_.erase(found);
  return absl::OkStatus();
}

std::vector<HandleTable::Info> HandleTable::List() {
  std::vector<Info> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [handle, entry] : entries_) {
    all.push_back({handle, entry.executable, entry.module->memory_bytes(), entry.runs, absl::Now() - entry.last_used});
  }
  return all;
}

int64_t HandleTable::TotalBytes() {
  absl::MutexLock lock(&mutex_);
  return TotalLocked();
}

int64_t HandleTable::TotalLocked() const {
  int64_t total = 0;
  for (const auto& [handle, entry] : entries_) total += entry.bytes;
  return total;
}

void HandleTable::DropExpired(std::vector<Entry>* dropped) {
  const absl::Time now = absl::Now();
  for (auto it = entries_.begin(); it != entries_.end();) {
    // use_count > 1: a run holds it.
    const bool expired = now - it->second.last_used > it->second.idle_expiry && it->second.module.use_count() == 1;
    if (expired) {
      dropped->push_back(std::move(it->second));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

void HandleTable::ExpireLoop() {
  while (true) {
    std::vector<Entry> dropped;
    absl::MutexLock lock(&mutex_);
    auto wake = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_; };
    mutex_.AwaitWithTimeout(absl::Condition(&wake), absl::Milliseconds(500));
    if (stop_) return;
    DropExpired(&dropped);
  }
}

}  // namespace inlay::server
