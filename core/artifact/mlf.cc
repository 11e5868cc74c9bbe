#include "core/artifact/mlf.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/artifact/mlf_constants.h"
#include "core/artifact/mlf_entry.h"
#include "core/artifact/mlf_names.h"
#include "core/artifact/param_writer.h"
#include "core/artifact/static_library.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay::artifact {
namespace {

constexpr int kMlfVersion = 1;
constexpr absl::Duration kTarTimeout = absl::Minutes(10);

// core/runtime/crt as it is in the source tree (BUILD.bazel, embedded_crt_*).
constexpr char kCrtHeader[] =
#include "core/artifact/embedded_crt_header.inc"
    ;
constexpr char kCrtSource[] =
#include "core/artifact/embedded_crt_source.inc"
    ;
constexpr char kCrtMemory[] =
#include "core/artifact/embedded_crt_memory.inc"
    ;
constexpr char kKernelAbi[] =
#include "core/artifact/embedded_crt_kernel_abi.inc"
    ;
constexpr char kCrtReadme[] =
#include "core/artifact/embedded_crt_readme.inc"
    ;

nlohmann::json TensorsJson(const std::vector<runtime::NamedTensor>& tensors, const std::vector<std::string>& members) {
  nlohmann::json json = nlohmann::json::array();
  for (size_t i = 0; i < tensors.size(); ++i) {
    json.push_back({{"name", tensors[i].name},
                    {"member", members[i]},
                    {"dtype", runtime::Name(tensors[i].type.dtype)},
                    {"shape", tensors[i].type.shape},
                    {"size_bytes", tensors[i].type.NumBytes()}});
  }
  return json;
}

int64_t TotalBytes(const std::vector<runtime::NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const runtime::NamedTensor& tensor : tensors) bytes += tensor.type.NumBytes();
  return bytes;
}

std::string MetadataJson(const MlfRequest& r, const MlfNames& names, int64_t constant_bytes) {
  const runtime::ExecutionPlan& plan = *r.plan;
  nlohmann::json functions = nlohmann::json::array();
  std::vector<int> calls(plan.functions.size(), 0);
  for (const runtime::Step& step : plan.run_steps) {
    if (step.kind == runtime::StepKind::kRun) ++calls[step.function];
  }
  for (size_t i = 0; i < plan.functions.size(); ++i) {
    const runtime::PlanFunction& f = plan.functions[i];
    const int64_t inside = names.functions.at(f.symbol)->constant_bytes();
    constant_bytes += inside;
    functions.push_back({{"function_name", names.kernels[i]},
                         {"backend", f.info.backend},
                         {"ops", f.info.ops},
                         {"types", f.info.types},
                         {"calls", calls[i]},
                         {"flops", f.info.flops.value},
                         {"constants_size_bytes", inside},
                         {"workspace_size_bytes", f.workspace_bytes}});
  }
  const nlohmann::json memory = {{"constants_size_bytes", constant_bytes},
                                 {"workspace_size_bytes", plan.arena_bytes},
                                 {"workspace_alignment_bytes", r.workspace_alignment},
                                 {"io_size_bytes", TotalBytes(plan.inputs) + TotalBytes(plan.outputs)}};
  const nlohmann::json json = {{"model_library_format", kMlfVersion},
                               {"model_name", r.model_name},
                               {"target", r.targets},
                               {"executors", {"aot"}},
                               {"runtime", "crt"},
                               {"interface_api", r.c_interface ? "c" : "packed"},
                               {"unpacked_api", r.unpacked_api},
                               {"system_lib", r.system_lib},
                               {"entry", names.prefix + "_run"},
                               {"header", absl::StrCat("codegen/host/include/", names.prefix, ".h")},
                               {"memory", memory},
                               {"inputs", TensorsJson(plan.inputs, names.inputs)},
                               {"outputs", TensorsJson(plan.outputs, names.outputs)},
                               {"functions", functions}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Files of one model, below a directory.
class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {}

  // ALREADY_EXISTS where another text has that name.
  absl::Status Add(const std::string& path, absl::string_view text) {
    const auto [it, fresh] = texts_.insert({path, Digest::Of(text)});
    if (!fresh) {
      if (it->second == Digest::Of(text)) return absl::OkStatus();
      return absl::FailedPreconditionError(absl::StrCat("two partitions bring different files ", path));
    }
    INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, Create(path));
    INLAY_RETURN_IF_ERROR(file->Append(text));
    return file->Close();
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) {
    const std::string full = JoinPath(root_, path);
    INLAY_RETURN_IF_ERROR(FileSystem::Default()->CreateDirectories(DirName(full)));
    return FileSystem::Default()->Create(full);
  }

  const std::string& root() const { return root_; }

 private:
  const std::string root_;
  std::map<std::string, Digest> texts_;
};

absl::Status AddKernels(const MlfRequest& r, const MlfNames& names, Tree* tree) {
  std::vector<std::pair<std::string, std::string>> renamed;
  for (size_t i = 0; i < names.kernels.size(); ++i) renamed.push_back({r.plan->functions[i].symbol, names.kernels[i]});
  for (const proto::StaticLibrary* library : r.libraries) {
    for (const proto::SourceFile& source : library->sources()) {
      const bool header = absl::EndsWith(source.name(), ".h");
      INLAY_RETURN_IF_ERROR(tree->Add(
          absl::StrCat(header ? "runtime/include/" : "codegen/host/src/", absl::StrReplaceAll(source.name(), renamed)),
          absl::StrReplaceAll(source.text(), renamed)));
    }
    for (int i = 0; i < library->objects_size(); ++i) {
      const std::string name =
          absl::StrCat(library->manifest().functions(0).symbol(), i == 0 ? "" : absl::StrCat(".", i));
      INLAY_RETURN_IF_ERROR(tree->Add(absl::StrCat("codegen/host/lib/", name, ".o"), library->objects(i).data()));
    }
  }
  return absl::OkStatus();
}

absl::Status AddAll(const MlfRequest& request, Tree* tree) {
  INLAY_ASSIGN_OR_RETURN(MlfNames names, MakeMlfNames(*request.plan, request.libraries, request.model_name));
  MlfRequest r = request;
  const bool objects = std::find(names.is_object.begin(), names.is_object.end(), true) != names.is_object.end();
  if (objects) {  // the kernel ABI's alignment
    r.workspace_alignment = std::max(r.workspace_alignment, static_cast<int>(runtime::kAlignment));
    INLAY_RETURN_IF_ERROR(tree->Add("runtime/include/inlay_kernel_abi.h", kKernelAbi));
    INLAY_RETURN_IF_ERROR(
        tree->Add(absl::StrCat("codegen/host/src/", names.prefix, "_objects.c"), MlfObjectCalls(r, names)));
  }
  INLAY_ASSIGN_OR_RETURN(MlfConstants constants, WriteMlfConstants(r, names));
  INLAY_RETURN_IF_ERROR(AddKernels(r, names, tree));
  const std::string source = "codegen/host/src/" + names.prefix;
  INLAY_RETURN_IF_ERROR(tree->Add(absl::StrCat("codegen/host/include/", names.prefix, ".h"), MlfHeader(r, names)));
  INLAY_RETURN_IF_ERROR(tree->Add(source + "_internal.h", MlfInternalHeader(r, names)));
  INLAY_RETURN_IF_ERROR(tree->Add(source + ".c", MlfEntry(r, names)));
  INLAY_RETURN_IF_ERROR(tree->Add(source + "_constants.c", constants.source));
  INLAY_RETURN_IF_ERROR(tree->Add("runtime/include/inlay_crt.h", kCrtHeader));
  INLAY_RETURN_IF_ERROR(tree->Add("runtime/src/inlay_crt.c", kCrtSource));
  INLAY_RETURN_IF_ERROR(tree->Add("runtime/freestanding/inlay_crt_memory.c", kCrtMemory));
  INLAY_RETURN_IF_ERROR(tree->Add("runtime/README.md", kCrtReadme));
  INLAY_RETURN_IF_ERROR(tree->Add("src/relax.txt", r.ir_text));
  INLAY_RETURN_IF_ERROR(
      tree->Add(absl::StrCat("executor-config/aot/", r.model_name, ".plan.json"), r.plan->ToJson() + "\n"));
  INLAY_RETURN_IF_ERROR(tree->Add("metadata.json", MetadataJson(r, names, constants.bytes)));
  INLAY_ASSIGN_OR_RETURN(ParamWriter params, ParamWriter::Make(*r.plan, r.params, r.param_source));
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                         tree->Create(absl::StrCat("parameters/", r.model_name, ".safetensors")));
  INLAY_RETURN_IF_ERROR(params.WriteSafetensors([&](absl::string_view data) { return file->Append(data); }));
  return file->Close();
}

// GNU tar, told to leave out what differs from one run to the next.
absl::Status Tar(const std::string& directory, const std::string& output) {
  SubprocessOptions options;
  for (const char* tar : {"/bin/tar", "/usr/bin/tar"}) {
    if (options.argv.empty() && access(tar, X_OK) == 0) options.argv = {tar};
  }
  if (options.argv.empty()) return absl::NotFoundError("the server has no tar");
  for (const std::string& argument :
       {std::string("--sort=name"), std::string("--mtime=@0"), std::string("--owner=0"), std::string("--group=0"),
        std::string("--numeric-owner"), std::string("--format=ustar"), std::string("--mode=u=rwX,go=rX"),
        std::string("-cf"), output, std::string("-C"), directory, std::string(".")}) {
    options.argv.push_back(argument);
  }
  options.env = {"LC_ALL=C"};
  return RunSubprocess(std::move(options), kTarTimeout).status();
}

}  // namespace

absl::Status WriteModelLibrary(const MlfRequest& request) {
  if (request.plan == nullptr) return absl::InvalidArgumentError("no plan to write");
  INLAY_RETURN_IF_ERROR(CheckStaticLibraries(request.libraries));
  for (const proto::StaticLibrary* library : request.libraries) {
    if (library->manifest().runtime_components().empty()) continue;
    return absl::UnimplementedError(absl::StrCat("runtime crt: code of the backend ", library->manifest().backend(),
                                                 " needs its library, which no Model Library Format carries"));
  }
  for (const runtime::Step& step : request.plan->load_steps) {
    return absl::UnimplementedError(absl::StrCat("runtime crt: '", step.name, "' is work to be done when the model is ",
                                                 "loaded, by ", request.plan->functions[step.function].info.backend,
                                                 "; nothing loads a model there"));
  }
  // In the output's directory: renaming is atomic within one file system.
  INLAY_ASSIGN_OR_RETURN(TempDir dir, TempDir::Create(".inlay_mlf", DirName(request.output)));
  Tree tree(dir.path() + "/model");
  INLAY_RETURN_IF_ERROR(AddAll(request, &tree));
  const std::string tar = dir.path() + "/model.tar";
  INLAY_RETURN_IF_ERROR(Tar(tree.root(), tar));
  return FileSystem::Default()->Rename(tar, request.output);
}

}  // namespace inlay::artifact
