// FakeBackend: a backend whose code generation misbehaves on request, for tests of workers and of what calls them.
//
// Its rule claims `reshape`; it is hidden. Its Codegen takes any partition function and gives a small valid x86-64
// object in which <symbol>_run copies the first input to the first output. What it does instead is said by the
// attributes of the codegen target (kind "fake"):
//   behaviour  ok (default); fail: INTERNAL; crash: a null pointer is written to; exit: _exit(3); hang: sleeps for
//   ever;
//              spin: computes for ever; allocate: takes memory without bound; garbage: an object that is no ELF file
//   once       a path: misbehaves only where the file is not there yet, and creates it (so that a retry succeeds)
//   size       bytes of padding in the object
//   delay_ms   sleeps first
//
// Linking the target registers both halves (alwayslink).
#ifndef INLAY_CORE_BACKEND_FAKE_BACKEND_H_
#define INLAY_CORE_BACKEND_FAKE_BACKEND_H_

#include "core/backend/backend.h"

namespace inlay::backend {

class FakeBackend : public Backend {
 public:
  std::string name() const override { return "fake"; }
  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override;
  const std::vector<PatternRule>& rules() const override;
  bool is_hidden(const target::Target&) const override { return true; }
};

class FakeCodegen : public BackendCodegen {
 public:
  std::string name() const override { return "fake"; }
  std::string version() const override { return "fake 1"; }
  absl::StatusOr<proto::StaticLibrary> Codegen(const CodegenRequest& request) const override;
};

}  // namespace inlay::backend

#endif  // INLAY_CORE_BACKEND_FAKE_BACKEND_H_
