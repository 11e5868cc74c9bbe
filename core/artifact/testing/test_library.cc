#include "core/artifact/testing/test_library.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_replace.h"
#include "core/artifact/static_library.h"
#include "core/base/file_system.h"
#include "core/base/subprocess.h"
#include "core/runtime/kernel_abi.h"
#include "core/target/target.h"

namespace inlay::artifact::testing {
namespace {

constexpr char kHeader[] = R"(
#include "core/runtime/kernel_abi.h"
)";

constexpr char kAdd[] = R"(
static void NAME_task(void* closure, int64_t begin, int64_t end, int32_t worker) {
  float** args = (float**)closure;
  for (int64_t i = begin; i < end; ++i) args[2][i] = args[0][i] + args[1][i];
}
int32_t NAME_run(const InlayCallContext* ctx, void* const* args) {
  ctx->parallel_for(ctx->pool, 1000, NAME_task, (void*)args);
  return 0;
}
)";

constexpr char kScale[] = R"(
float expf(float);
int32_t NAME_init(const InlayCallContext* ctx, void* const* args, void** state) {
  float* packed = ctx->alloc(ctx->owner, 4000);
  if (!packed) return INLAY_E_NO_MEMORY;
  for (int i = 0; i < 1000; ++i) packed[i] = 2 * ((const float*)args[1])[i];
  *state = packed;
  return 0;
}
int32_t NAME_run(const InlayCallContext* ctx, void* const* args) {
  const float* packed = ctx->state;
  volatile float* zero = ctx->workspace;
  *zero = 0;
  for (int i = 0; i < 1000; ++i) ((float*)args[2])[i] = ((const float*)args[0])[i] * packed[i] * expf(*zero);
  return 0;
}
void NAME_destroy(void* state) {}
)";

constexpr char kFail[] = R"(
int32_t NAME_run(const InlayCallContext* ctx, void* const* args) {
  const float* x = args[0];
  if (x[1] > 100) {
    ctx->set_error(ctx->owner, INLAY_E_LIBRARY, "the second element is too big");
    return INLAY_E_LIBRARY;
  }
  for (int i = 0; i < 1000; ++i) ((float*)args[1])[i] = x[i];
  return 0;
}
)";

std::string Named(const char* source, const std::string& symbol) {
  return kHeader + absl::StrReplaceAll(source, {{"NAME", symbol}});
}

[[noreturn]] void Die(const absl::Status& status) {
  std::cerr << status << std::endl;
  std::abort();
}

}  // namespace

ir::TensorType Vector() { return ir::MakeTensorType(ir::DType::kF32, {kSize}); }

Signature AddSignature(std::string symbol) {
  return Signature(std::move(symbol)).In(Vector()).In(Vector()).Out(Vector());
}
std::string AddSource(const std::string& symbol) { return Named(kAdd, symbol); }

Signature ScaleSignature(std::string symbol) {
  return Signature(std::move(symbol))
      .In(Vector())
      .In(Vector())
      .Out(Vector())
      .Constant({1})
      .InitOnly({1})
      .Workspace(256);
}
std::string ScaleSource(const std::string& symbol) { return Named(kScale, symbol); }

Signature FailSignature(std::string symbol) { return Signature(std::move(symbol)).In(Vector()).Out(Vector()); }
std::string FailSource(const std::string& symbol) { return Named(kFail, symbol); }

std::string CompileC(const std::string& source, std::vector<std::string> flags) {
  auto dir = TempDir::Create("inlay_test_library");
  if (!dir.ok()) Die(dir.status());
  const std::string c = dir->path() + "/t.c", o = dir->path() + "/t.o";
  if (absl::Status s = WriteFileAtomically(c, source); !s.ok()) Die(s);
  SubprocessOptions options;
  options.argv = {"/usr/bin/gcc", "-O2", "-fPIC", "-fno-builtin", "-I.", "-c", c, "-o", o};
  options.argv.insert(options.argv.end(), flags.begin(), flags.end());
  options.env = {"PATH=/usr/bin:/bin", "TMPDIR=" + dir->path()};
  auto result = RunSubprocess(std::move(options), absl::Seconds(60));
  if (!result.ok()) Die(result.status());
  auto object = ReadFile(o);
  if (!object.ok()) Die(object.status());
  return *object;
}

proto::StaticLibrary MakeLibrary(const std::string& source, const std::vector<Signature>& functions,
                                 std::vector<std::string> flags) {
  proto::StaticLibrary library;
  proto::StaticLibraryManifest& manifest = *library.mutable_manifest();
  manifest.set_format_version(kStaticLibraryFormatVersion);
  manifest.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  manifest.set_backend("test");
  manifest.set_backend_version("1");
  manifest.set_target_triple("x86_64-unknown-linux-gnu");
  manifest.set_target_cpu("x86-64");
  manifest.set_target_features("+sse2");
  for (const Signature& f : functions) *manifest.add_functions() = f.entry();
  proto::ObjectFile& object = *library.add_objects();
  object.set_name("t.o");
  object.set_data(CompileC(source, std::move(flags)));
  return library;
}

TestModel::TestModel(bool with_fail) : w(kSize) {
  for (int i = 0; i < kSize; ++i) w[i] = 0.25f * static_cast<float>(i % 17);
  builder.Declare(AddSignature());
  builder.Declare(ScaleSignature());
  builder.Declare(FailSignature());
  libraries.push_back(MakeLibrary(AddSource(), {AddSignature()}));
  libraries.push_back(MakeLibrary(ScaleSource(), {ScaleSignature()}));
  if (with_fail) libraries.push_back(MakeLibrary(FailSource(), {FailSignature()}));
  ir::ConstantPtr weight = ir::MakeWeight(Vector(), Digest::Of(weight_bytes()), "layer.weight");
  ir::VarPtr x = builder.Input("x", Vector());
  ir::VarPtr w2 = builder.Lift("t_add", {weight, weight});
  ir::VarPtr v = builder.Call("t_add", {x, w2}, "sum");
  v = builder.Call("t_scale", {v, weight}, "scale");
  if (with_fail) v = builder.Call("t_fail", {v}, "checker");
  builder.Return({v, x}, {"y", "x_again"});
}

std::vector<const proto::StaticLibrary*> TestModel::library_pointers() const {
  std::vector<const proto::StaticLibrary*> pointers;
  for (const proto::StaticLibrary& l : libraries) pointers.push_back(&l);
  return pointers;
}

std::vector<proto::StaticLibraryManifest> TestModel::manifests() const {
  std::vector<proto::StaticLibraryManifest> manifests;
  for (const proto::StaticLibrary& l : libraries) manifests.push_back(l.manifest());
  return manifests;
}

std::vector<float> TestModel::Expected(const std::vector<float>& x) const {
  std::vector<float> y(kSize);
  for (int i = 0; i < kSize; ++i) y[i] = (x[i] + (w[i] + w[i])) * (2 * w[i]);
  return y;
}

std::string TestModel::weight_bytes() const {
  return std::string(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float));
}

}  // namespace inlay::artifact::testing
