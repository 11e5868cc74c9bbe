#include "core/backend/fake_backend.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/backend/testing/tiny_object.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backend {
namespace {

int64_t IntAttr(const target::Target& target, absl::string_view name) {
  int64_t value = 0;
  (void)absl::SimpleAtoi(target.attr(name), &value);
  return value;
}

bool ShouldMisbehave(const target::Target& target) {
  const std::string once = target.attr("once");
  if (once.empty()) return true;
  const int fd = open(once.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void AllocateForEver() {
  constexpr size_t kPiece = 16 << 20;
  for (;;) {
    char* piece = new char[kPiece];
    for (size_t i = 0; i < kPiece; i += 4096) *static_cast<volatile char*>(piece + i) = 1;
  }
}

absl::Status Misbehave(const std::string& behaviour) {
  if (behaviour == "fail") return absl::InternalError("fake: failing on request");
  if (behaviour == "crash") *static_cast<volatile int*>(nullptr) = 1;
  if (behaviour == "exit") _exit(3);
  if (behaviour == "allocate") AllocateForEver();
  if (behaviour == "hang") {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (behaviour == "spin") {
    for (volatile int i = 0;; i = i + 1) {
    }
  }
  return absl::OkStatus();
}

void FillType(const ir::Type& type, proto::TensorType* proto) {
  proto->set_dtype(static_cast<proto::DType>(type.tensor().dtype));
  for (const ir::Dim& dim : type.tensor().dims) proto->add_dims()->set_value(dim.value());
}

absl::StatusOr<testing::CopyFunction> AddFunction(const std::string& symbol, const ir::Function& function,
                                                  proto::StaticLibraryManifest* manifest) {
  proto::PrimitiveFunction* primitive = manifest->add_functions();
  primitive->set_symbol(symbol);
  auto usable = [](const ir::Type& type) { return type.is_tensor() && type.tensor().is_static(); };
  int64_t bytes = int64_t{1} << 30;
  for (const ir::VarPtr& param : function.params) {
    if (!usable(param->type)) return absl::InvalidArgumentError(absl::StrCat("fake: parameter '", param->name, "'"));
    FillType(param->type, primitive->add_inputs());
  }
  for (const ir::Operand& result : function.body.results) {
    if (!usable(result.type())) return absl::InvalidArgumentError("fake: a result is no tensor of known shape");
    FillType(result.type(), primitive->add_outputs());
  }
  if (function.params.empty() || function.body.results.empty()) {
    return absl::InvalidArgumentError("fake: a partition needs a parameter and a result");
  }
  for (int64_t i : function.attrs.IntsOr(kConstantParams, {})) primitive->add_constant_inputs(static_cast<int32_t>(i));
  bytes = std::min(function.params[0]->type.tensor().NumBytes(), function.body.results[0].tensor_type().NumBytes());
  return testing::CopyFunction{symbol + "_run", static_cast<int>(function.params.size()), bytes};
}

}  // namespace

absl::Status FakeBackend::CheckTarget(const target::Target& target, const target::Target&) const {
  return target.kind == "llvm" ? absl::OkStatus() : absl::FailedPreconditionError("fake serves llvm targets only");
}

const std::vector<PatternRule>& FakeBackend::rules() const {
  static const auto* const kRules =
      new std::vector<PatternRule>{{"fake.copy", ir::Op("reshape", {ir::Any()}),
                                    [](const ir::PatternMatch& match, const target::Target&) {
                                      const ir::Operand& x = match.bindings.back()->args[0];
                                      return x.is_var() && x.tensor_type().is_static()
                                                 ? absl::OkStatus()
                                                 : absl::UnimplementedError("not a tensor of known shape");
                                    },
                                    0}};
  return *kRules;
}

absl::StatusOr<proto::StaticLibrary> FakeCodegen::Codegen(const CodegenRequest& request) const {
  const target::Target& fake = request.codegen_target;
  std::this_thread::sleep_for(std::chrono::milliseconds(IntAttr(fake, "delay_ms")));
  const std::string behaviour = ShouldMisbehave(fake) ? fake.attr("behaviour", "ok") : "ok";
  if (absl::Status status = Misbehave(behaviour); !status.ok()) return status;

  proto::StaticLibrary library;
  proto::StaticLibraryManifest* manifest = library.mutable_manifest();
  manifest->set_format_version(1);
  manifest->set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  manifest->set_backend(name());
  manifest->set_backend_version(version());
  manifest->set_target_triple(request.target.attr("mtriple"));
  manifest->set_target_cpu(request.target.attr("mcpu"));
  std::vector<testing::CopyFunction> functions;
  for (const auto& [symbol, function] : request.module.functions) {
    auto copy = AddFunction(symbol, function, manifest);
    if (!copy.ok()) return copy.status();
    functions.push_back(*copy);
  }
  proto::ObjectFile* object = library.add_objects();
  object->set_name("fake.o");
  object->set_data(behaviour == "garbage" ? "this is no object file"
                                          : testing::MakeCopyObject(functions, IntAttr(fake, "size")));
  return library;
}

INLAY_REGISTER_BACKEND(FakeBackend);
INLAY_REGISTER_CODEGEN(FakeCodegen);

}  // namespace inlay::backend
