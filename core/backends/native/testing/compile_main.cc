// Compiles the function "main" of every serialized IRModule DIR/*.pb with the native backend, under the file's name as
// its symbol: what the Python tests of this folder drive. One process for many functions, so that a test run does not
// pay LLVM's start-up a thousand times.
//
//   compile_main TARGET DIR      writes DIR/<name>.o and DIR/<name>.manifest, or DIR/<name>.error (text)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/backend/backend.h"
#include "core/ir/proto_conversion.h"

namespace {

int Fail(const std::string& message) {
  std::fprintf(stderr, "compile_main: %s\n", message.c_str());
  return 1;
}

absl::StatusOr<inlay::proto::StaticLibrary> Compile(const std::filesystem::path& path,
                                                    const inlay::target::Target& target) {
  std::ifstream file(path, std::ios::binary);
  inlay::proto::IRModule proto;
  if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError("not an IRModule");
  auto module = inlay::ir::PartitionsFromProto(proto);
  if (!module.ok()) return module.status();
  inlay::ir::IRModule one;
  inlay::ir::Function& function = one.functions[path.stem().string()] = module->functions["main"];
  if (!function.attrs.Has(inlay::backend::kConstantParams)) {
    function.attrs.Set(inlay::backend::kConstantParams, std::vector<int64_t>{});
  }
  const auto* codegen = inlay::backend::CodegenRegistry::Global().Find("native");
  return codegen->Codegen({one, target, {}, ""});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Fail("usage: compile_main TARGET DIR");
  auto target = inlay::target::Target::Parse(argv[1]);
  if (!target.ok()) return Fail(target.status().ToString());
  auto completed = target->Completed();
  if (!completed.ok()) return Fail(completed.status().ToString());
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    if (entry.path().extension() == ".pb") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    auto start = std::chrono::steady_clock::now();
    auto library = Compile(path, *completed);
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    std::string base = path.parent_path() / path.stem();
    if (library.ok()) {
      std::ofstream(base + ".o", std::ios::binary) << library->objects(0).data();
      std::ofstream(base + ".manifest", std::ios::binary) << library->manifest().SerializeAsString();
    } else {
      std::ofstream(base + ".error") << library.status().ToString();
    }
    std::printf("%s %.1f ms\n", path.stem().c_str(), ms);
    std::fflush(stdout);
  }
  return 0;
}
