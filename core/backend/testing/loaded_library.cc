#include "core/backend/testing/loaded_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/ir/type.h"

namespace inlay::backend::testing {
namespace {

constexpr int64_t kGuard = 64;
constexpr char kGuardByte = 0x5a;

char* AllocateGuarded(int64_t bytes) {
  const int64_t room = (bytes + 63) / 64 * 64 + kGuard;
  char* data = static_cast<char*>(std::aligned_alloc(64, room));
  std::memset(data, 0, bytes);
  std::memset(data + bytes, kGuardByte, room - bytes);
  return data;
}

bool GuardHolds(const char* data, int64_t bytes) {
  const int64_t room = (bytes + 63) / 64 * 64 + kGuard;
  return std::all_of(data + bytes, data + room, [](char c) { return c == kGuardByte; });
}

// A thread a range, made for the call: slow, and right.
void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure) {
  const int64_t threads = std::min<int64_t>(n, *static_cast<int*>(pool));
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) {
    others.emplace_back([=] { task(closure, n * i / threads, n * (i + 1) / threads, static_cast<int32_t>(i)); });
  }
  if (n > 0) task(closure, 0, n / std::max<int64_t>(threads, 1), 0);
  for (std::thread& other : others) other.join();
}

std::string RunLinker(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[512];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  const int status = pclose(pipe);
  return status == 0 ? "" : absl::StrCat("ld.lld: ", output);
}

}  // namespace

int64_t ByteSize(const proto::TensorType& type) {
  int64_t bytes = ir::ByteSize(static_cast<ir::DType>(type.dtype()));
  for (const proto::Dim& dim : type.dims()) bytes *= dim.value();
  return bytes;
}

absl::StatusOr<std::unique_ptr<LoadedLibrary>> LoadedLibrary::Load(const proto::StaticLibrary& library) {
  static std::atomic<int> counter{0};
  const char* tmp = std::getenv("TEST_TMPDIR");
  const std::string base = absl::StrCat(tmp == nullptr ? "/tmp" : tmp, "/loaded_library_", getpid(), "_", counter++);
  // With nothing in its environment: what the objects need is in them.
  std::string command = "/usr/bin/env -i /usr/lib/llvm-19/bin/ld.lld -shared -z text -o " + base + ".so";
  std::vector<std::string> files;
  for (int i = 0; i < library.objects_size(); ++i) {
    files.push_back(absl::StrCat(base, "_", i, ".o"));
    std::ofstream(files.back(), std::ios::binary) << library.objects(i).data();
    absl::StrAppend(&command, " ", files.back());
  }
  const std::string message = RunLinker(command);
  for (const std::string& file : files) unlink(file.c_str());
  if (!message.empty()) return absl::FailedPreconditionError(message);
  std::unique_ptr<LoadedLibrary> loaded(new LoadedLibrary);
  loaded->path_ = base + ".so";
  loaded->handle_ = dlopen(loaded->path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle_ == nullptr) return absl::FailedPreconditionError(dlerror());
  return loaded;
}

LoadedLibrary::~LoadedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
  unlink(path_.c_str());
}

void* LoadedLibrary::Find(const std::string& symbol) const { return dlsym(handle_, symbol.c_str()); }

struct LoadedFunction::Memory {
  ~Memory() {
    for (void* block : blocks) std::free(block);
  }
  std::mutex mutex;
  std::vector<void*> blocks;
  std::string error;
};

LoadedFunction::LoadedFunction(const proto::PrimitiveFunction& function, int num_threads)
    : function_(function), num_threads_(num_threads), memory_(std::make_unique<Memory>()) {}

LoadedFunction::~LoadedFunction() {
  if (destroy_ != nullptr && state_ != nullptr) destroy_(state_);
}

absl::StatusOr<std::unique_ptr<LoadedFunction>> LoadedFunction::Init(const LoadedLibrary& library,
                                                                     const proto::PrimitiveFunction& function,
                                                                     const std::vector<std::string>& inputs,
                                                                     int num_threads) {
  std::unique_ptr<LoadedFunction> loaded(new LoadedFunction(function, num_threads));
  loaded->run_ = reinterpret_cast<InlayRunFunction>(library.Find(function.symbol() + "_run"));
  if (loaded->run_ == nullptr) return absl::NotFoundError(function.symbol() + "_run");
  if (!function.has_state()) return loaded;
  auto init = reinterpret_cast<InlayInitFunction>(library.Find(function.symbol() + "_init"));
  loaded->destroy_ = reinterpret_cast<InlayDestroyFunction>(library.Find(function.symbol() + "_destroy"));
  if (init == nullptr || loaded->destroy_ == nullptr) return absl::NotFoundError(function.symbol() + "_init, _destroy");

  // The constant inputs, in memory that is gone after init where the manifest allows.
  std::vector<char*> copies(function.inputs_size(), nullptr);
  std::vector<void*> args(function.inputs_size() + function.outputs_size(), nullptr);
  for (int i : function.constant_inputs()) {
    copies[i] = AllocateGuarded(static_cast<int64_t>(inputs[i].size()));
    std::memcpy(copies[i], inputs[i].data(), inputs[i].size());
    args[i] = copies[i];
  }
  InlayCallContext context = {};
  context.num_threads = num_threads;
  context.pool = &num_threads;
  context.parallel_for = ParallelFor;
  context.owner = loaded->memory_.get();
  context.alloc = [](void* owner, int64_t bytes) {
    auto* memory = static_cast<Memory*>(owner);
    void* block = std::aligned_alloc(64, std::max<int64_t>((bytes + 63) / 64 * 64, 64));
    std::memset(block, 0, bytes);
    std::lock_guard<std::mutex> lock(memory->mutex);
    memory->blocks.push_back(block);
    return block;
  };
  context.set_error = [](void* owner, int32_t, const char* message) { static_cast<Memory*>(owner)->error = message; };
  const int32_t code = init(&context, args.data(), &loaded->state_);
  for (int i : function.constant_inputs()) {
    std::memset(copies[i], 0xff, inputs[i].size());  // NaN: whoever reads it still is found out
    std::free(copies[i]);
  }
  if (code != INLAY_OK) return absl::InternalError(absl::StrCat("init: ", code, ": ", loaded->memory_->error));
  return loaded;
}

std::unique_ptr<LoadedFunction::Call> LoadedFunction::Prepare(const std::vector<std::string>& inputs,
                                                              int num_threads) const {
  std::unique_ptr<Call> call(new Call);
  call->function_ = this;
  auto add = [&](int64_t bytes) {
    call->buffers_.emplace_back(AllocateGuarded(bytes), bytes);
    return call->buffers_.back().first;
  };
  for (int i = 0; i < function_.inputs_size(); ++i) {
    const auto& once = function_.init_only_inputs();
    if (std::find(once.begin(), once.end(), i) != once.end()) {
      call->args_.push_back(nullptr);  // a promise of the manifest
      continue;
    }
    call->args_.push_back(add(static_cast<int64_t>(inputs[i].size())));
    std::memcpy(call->args_.back(), inputs[i].data(), inputs[i].size());
  }
  for (const proto::TensorType& output : function_.outputs()) call->args_.push_back(add(ByteSize(output)));
  if (function_.workspace_bytes() > 0) call->context_.workspace = add(function_.workspace_bytes());
  call->context_.state = state_;
  call->context_.num_threads = num_threads > 0 ? num_threads : num_threads_;
  call->context_.pool = &call->context_.num_threads;
  call->context_.parallel_for = ParallelFor;
  call->context_.owner = &call->error_;
  call->context_.set_error = [](void* owner, int32_t code, const char* message) {
    *static_cast<Call::Error*>(owner) = {code, message};
  };
  return call;
}

LoadedFunction::Call::~Call() {
  for (auto& [data, bytes] : buffers_) std::free(data);
}

absl::Status LoadedFunction::Call::Run() {
  if (int32_t code = function_->run_(&context_, args_.data()); code != INLAY_OK) {
    return absl::InternalError(absl::StrCat("run: ", code, ": ", error_.message));
  }
  for (auto& [data, bytes] : buffers_) {
    if (!GuardHolds(data, bytes)) return absl::OutOfRangeError("run wrote beyond the end of a buffer");
  }
  return absl::OkStatus();
}

std::vector<std::string> LoadedFunction::Call::Outputs() const {
  std::vector<std::string> outputs;
  const proto::PrimitiveFunction& f = function_->function_;
  for (int i = 0; i < f.outputs_size(); ++i) {
    outputs.emplace_back(static_cast<const char*>(args_[f.inputs_size() + i]), ByteSize(f.outputs(i)));
  }
  return outputs;
}

absl::StatusOr<std::vector<std::string>> LoadedFunction::Run(const std::vector<std::string>& inputs,
                                                             int num_threads) const {
  auto call = Prepare(inputs, num_threads);
  if (absl::Status status = call->Run(); !status.ok()) return status;
  return call->Outputs();
}

}  // namespace inlay::backend::testing
