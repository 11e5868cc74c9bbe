// Object code loaded into this process with ORC and JITLink: no compiler, no linker, no file. The only place that knows
// ORC.
//
// A JitCode owns the memory of its objects and frees it when it is destroyed; nobody may be inside its code then.
// Undefined symbols are resolved to the C and math functions that core/artifact/static_library.h allows and to what
// the backends' :runtime targets registered (core/runtime/symbol_registry.h), never to the process at large.
#ifndef INLAY_CORE_JIT_ORC_JIT_H_
#define INLAY_CORE_JIT_ORC_JIT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/artifact.pb.h"

namespace inlay::jit {

class JitCode {
 public:
  // The libraries have passed CheckStaticLibraries here first, CPU features included. FAILED_PRECONDITION names what
  // could not be linked.
  static absl::StatusOr<std::unique_ptr<JitCode>> Load(const std::vector<const proto::StaticLibrary*>& libraries);
  ~JitCode();
  JitCode(const JitCode&) = delete;
  JitCode& operator=(const JitCode&) = delete;

  // NOT_FOUND: no such symbol. Any thread.
  absl::StatusOr<void*> Lookup(absl::string_view symbol) const;
  int64_t code_bytes() const;  // pages that hold code and its data

 private:
  struct Impl;
  explicit JitCode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::jit

#endif  // INLAY_CORE_JIT_ORC_JIT_H_
