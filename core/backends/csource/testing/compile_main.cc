// Compiles the function "main" of every serialized IRModule DIR/*.pb with csource, under the file's name as its symbol:
// what the Python tests drive. A partition whose operators the rules refuse gives DIR/<name>.refused (the reason).
//
//   compile_main TARGET DIR      writes DIR/<name>.o and DIR/<name>.manifest, or DIR/<name>.error (text)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/backend/backend.h"
#include "core/backends/csource/op.h"
#include "core/ir/proto_conversion.h"

namespace {

// A target of kind "c": its sources, and `<symbol>_run` around the plain function, through a compiler that takes
// nothing but C11. Strict about it: no warning is let pass.
absl::Status BuildPlain(const inlay::proto::StaticLibrary& library, const std::string& base) {
  for (const auto& source : library.sources()) {
    std::ofstream(std::filesystem::path(base).parent_path() / source.name()) << source.text();
  }
  const auto& function = library.manifest().functions(0);
  std::string args;
  for (int i = 0; i < function.inputs_size() + function.outputs_size(); ++i)
    args += "args[" + std::to_string(i) + "], ";
  std::ofstream(base + ".c", std::ios::app)
      << "\nint32_t " << function.symbol() << "_run(void *const *ctx, void *const *args);\nint32_t "
      << function.symbol() << "_run(void *const *ctx, void *const *args) { return " << function.symbol() << "(" << args
      << "ctx[1]); }\n";
  const std::string command =
      "gcc -std=c11 -Wall -Wextra -Werror -pedantic -O0 -fPIC -c " + base + ".c -o " + base + ".o 2> " + base + ".log";
  if (std::system(command.c_str()) == 0) return absl::OkStatus();
  std::ifstream log(base + ".log");
  return absl::InvalidArgumentError(std::string(std::istreambuf_iterator<char>(log), {}));
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "compile_main: %s\n", message.c_str());
  return 1;
}

absl::StatusOr<inlay::ir::IRModule> Read(const std::filesystem::path& path) {
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
  return one;
}

std::string Refusal(const inlay::ir::IRModule& module) {
  for (const auto& [name, function] : module.functions) {
    for (const inlay::ir::Binding& binding : function.body.bindings) {
      if (binding.kind != inlay::ir::Binding::Kind::kCall) continue;
      const absl::Status status = inlay::csource::CheckCall(binding);
      if (!status.ok()) return std::string(status.message());
    }
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Fail("usage: compile_main TARGET DIR");
  auto target = inlay::target::Target::Parse(argv[1]);
  if (!target.ok()) return Fail(target.status().ToString());
  auto completed = target->Completed();
  if (!completed.ok()) return Fail(completed.status().ToString());
  // The names are short, the sources many: as fast as the compiler can.
  inlay::target::Target codegen_target;
  codegen_target.kind = "csource";
  if (const char* cflags = std::getenv("INLAY_CSOURCE_CFLAGS")) codegen_target.attrs["cflags"] = cflags;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    if (entry.path().extension() == ".pb") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  const auto* codegen = inlay::backend::CodegenRegistry::Global().Find("csource");
  for (const auto& path : paths) {
    const std::string base = path.parent_path() / path.stem();
    auto module = Read(path);
    if (module.ok() && !Refusal(*module).empty()) {
      std::ofstream(base + ".refused") << Refusal(*module);
      continue;
    }
    absl::StatusOr<inlay::proto::StaticLibrary> library = absl::UnknownError("no module");
    library = module.ok() ? codegen->Codegen({*module, *completed, codegen_target, argv[2]}) : module.status();
    if (library.ok() && completed->kind == "c") {
      if (absl::Status built = BuildPlain(*library, base); !built.ok()) library = built;
    } else if (library.ok()) {
      std::ofstream(base + ".o", std::ios::binary) << library->objects(0).data();
    }
    if (library.ok()) {
      std::ofstream(base + ".manifest", std::ios::binary) << library->manifest().SerializeAsString();
    } else {
      std::ofstream(base + ".error") << library.status().ToString();
    }
  }
  return 0;
}
