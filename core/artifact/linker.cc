#include "core/artifact/linker.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/artifact/elf_object.h"
#include "core/artifact/param_writer.h"
#include "core/artifact/static_library.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::artifact {
namespace {

constexpr int kLibraryFormatVersion = 1;  // core/runtime/exported/library.h
// Bigger parameters must not lie between code and data: x86-64 reaches 2 GiB.
constexpr uint64_t kLargeParams = uint64_t{1} << 30;
constexpr absl::Duration kLinkTimeout = absl::Minutes(10);

// What all of the libraries together need.
struct Needs {
  std::string triple, cpu, features;
  std::vector<proto::RequiredLibrary> required_libraries;
  std::vector<std::string> runtime_components;
  nlohmann::json backends = nlohmann::json::array();
};

absl::StatusOr<Needs> Collect(const LinkRequest& request) {
  Needs needs;
  std::set<std::string> features, sonames, components;
  std::map<std::pair<std::string, std::string>, int> backends;
  for (const proto::StaticLibrary* library : request.libraries) {
    const proto::StaticLibraryManifest& manifest = library->manifest();
    if (!needs.triple.empty() && needs.triple != manifest.target_triple()) {
      return absl::FailedPreconditionError(
          absl::StrCat("StaticLibraries for ", needs.triple, " and for ", manifest.target_triple(), " in one library"));
    }
    needs.triple = manifest.target_triple();
    needs.cpu = manifest.target_cpu();
    for (absl::string_view feature : absl::StrSplit(manifest.target_features(), ',', absl::SkipEmpty())) {
      if (feature[0] == '+') features.insert(std::string(feature));
    }
    for (const proto::RequiredLibrary& required : manifest.required_libraries()) {
      if (sonames.insert(required.soname()).second) needs.required_libraries.push_back(required);
    }
    components.insert(manifest.runtime_components().begin(), manifest.runtime_components().end());
    backends[{manifest.backend(), manifest.backend_version()}] += manifest.functions_size();
  }
  if (!needs.triple.empty() && !absl::StartsWith(needs.triple, "x86_64-")) {
    return absl::UnimplementedError(absl::StrCat("this server has no artifact runtime for ", needs.triple));
  }
  needs.features = absl::StrJoin(features, ",");
  needs.runtime_components.assign(components.begin(), components.end());
  for (const auto& [backend, functions] : backends) {
    needs.backends.push_back({{"name", backend.first}, {"version", backend.second}, {"functions", functions}});
  }
  return needs;
}

std::string ManifestJson(const LinkRequest& request, const Needs& needs, const ParamWriter& params) {
  nlohmann::json json = {{"inlay_library", kLibraryFormatVersion},
                         {"kernel_abi", INLAY_KERNEL_ABI_VERSION},
                         {"target", {{"triple", needs.triple}, {"cpu", needs.cpu}, {"features", needs.features}}},
                         {"backends", needs.backends},
                         {"required_libraries", nlohmann::json::array()},
                         {"params_linked", request.link_params},
                         {"param_offsets", request.link_params ? params.offsets() : std::vector<uint64_t>()},
                         {"plan", nlohmann::json::parse(request.plan->ToJson())}};
  for (const proto::RequiredLibrary& library : needs.required_libraries) {
    json["required_libraries"].push_back({{"soname", library.soname()}, {"package", library.package()}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The plan's functions must be those of the libraries.
absl::Status CheckFunctions(const LinkRequest& request) {
  std::map<std::string, const proto::PrimitiveFunction*> functions;
  for (const proto::StaticLibrary* library : request.libraries) {
    for (const proto::PrimitiveFunction& f : library->manifest().functions()) functions[f.symbol()] = &f;
  }
  for (const runtime::PlanFunction& f : request.plan->functions) {
    const auto it = functions.find(f.symbol);
    if (it == functions.end()) {
      return absl::FailedPreconditionError(absl::StrCat("function ", f.symbol, " is implemented by no StaticLibrary"));
    }
    if (it->second->has_state() != f.has_state || it->second->inputs_size() != f.num_inputs ||
        it->second->outputs_size() != f.num_outputs || it->second->workspace_bytes() != f.workspace_bytes) {
      return absl::FailedPreconditionError(absl::StrCat("function ", f.symbol, " is not what the plan was made for"));
    }
  }
  return absl::OkStatus();
}

// InlayLibraryTable of core/runtime/exported/tables.h, and what it points to.
absl::Status WriteTables(const LinkRequest& request, const std::string& manifest, const ParamWriter& params,
                         const std::string& path) {
  ElfObject object(ElfObject::Machine::kX86_64);
  const int manifest_section = object.AddSection(".inlay.manifest", manifest, {});
  const int manifest_symbol = object.AddSymbol("inlay_library_manifest", manifest_section, manifest.size());
  const bool linked = request.link_params && params.linked_bytes() > 0;
  int params_symbol = -1;
  if (linked) {
    ElfObject::SectionOptions options;
    options.align = 4096;
    options.large = params.linked_bytes() >= kLargeParams;
    const int section = object.AddSection(
        ".inlay.params", params.linked_bytes(), [&](const ElfObject::Sink& sink) { return params.WriteLinked(sink); },
        options);
    params_symbol = object.AddSymbol("inlay_library_params", section, params.linked_bytes());
  }
  const std::vector<runtime::PlanFunction>& functions = request.plan->functions;
  std::vector<uint64_t> table(5 + 3 * functions.size(), 0);
  table[1] = manifest.size();
  table[3] = linked ? params.linked_bytes() : 0;
  table[4] = functions.size();
  ElfObject::SectionOptions relocated;
  relocated.writable = true;
  const int section = object.AddSection(
      ".data.rel.ro.inlay", std::string(reinterpret_cast<const char*>(table.data()), table.size() * 8), relocated);
  object.AddSymbol("inlay_library_table", section, table.size() * 8);
  object.AddPointer(section, 0, manifest_symbol);
  if (linked) object.AddPointer(section, 16, params_symbol);
  for (size_t i = 0; i < functions.size(); ++i) {
    const uint64_t at = 8 * (5 + 3 * i);
    object.AddPointer(section, at, object.AddUndefined(functions[i].symbol + "_run"));
    if (!functions[i].has_state) continue;
    object.AddPointer(section, at + 8, object.AddUndefined(functions[i].symbol + "_init"));
    object.AddPointer(section, at + 16, object.AddUndefined(functions[i].symbol + "_destroy"));
  }
  return object.WriteTo(path);
}

class Link {
 public:
  Link(const LinkToolchain& toolchain, const LinkRequest& request, std::string dir)
      : toolchain_(toolchain), request_(request), dir_(std::move(dir)) {}

  absl::Status Run(const Needs& needs, const ParamWriter& params, const std::string& output) {
    args_ = {toolchain_.lld,
             "-shared",
             "-o",
             output,
             "--gc-sections",
             "-Bsymbolic",
             "--hash-style=gnu",
             "--build-id=fast",
             "--strip-debug",
             "-z",
             "relro",
             "-z",
             "now",
             "-z",
             "noexecstack",
             "--enable-new-dtags",
             "-rpath",
             "$ORIGIN:$ORIGIN/lib",
             "--eh-frame-hdr",
             "--threads=2",
             "--undefined=__tvm_ffi_main"};
    if (request_.plan->openmp) args_.push_back("--undefined=inlay_openmp_parallel_for");
    INLAY_RETURN_IF_ERROR(AddVersionScript());
    args_.push_back(toolchain_.crti);
    args_.push_back(toolchain_.crt_begin);
    INLAY_RETURN_IF_ERROR(AddObjects());
    const std::string tables = dir_ + "/tables.o";
    INLAY_RETURN_IF_ERROR(WriteTables(request_, ManifestJson(request_, needs, params), params, tables));
    INLAY_RETURN_IF_ERROR(Cancelled());
    args_.push_back(tables);
    INLAY_RETURN_IF_ERROR(AddArchives(needs));
    INLAY_RETURN_IF_ERROR(AddSharedLibraries(needs));
    args_.push_back(toolchain_.crt_end);
    args_.push_back(toolchain_.crtn);
    return RunLinker();
  }

 private:
  absl::Status Cancelled() const { return request_.cancel != nullptr ? request_.cancel->status() : absl::OkStatus(); }

  absl::StatusOr<std::string> WriteFile(const std::string& name, absl::string_view data) {
    const std::string path = dir_ + "/" + name;
    INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, FileSystem::Default()->Create(path, 0600));
    INLAY_RETURN_IF_ERROR(file->Append(data));
    INLAY_RETURN_IF_ERROR(file->Close());
    return path;
  }

  // Hides everything else, that of the archives too (--exclude-libs would hide the entry points).
  absl::Status AddVersionScript() {
    INLAY_ASSIGN_OR_RETURN(std::string path, WriteFile("exports.ver", "{ global: __tvm_ffi_*; local: *; };\n"));
    args_.push_back("--version-script=" + path);
    return absl::OkStatus();
  }

  absl::Status AddObjects() {
    int count = 0;
    for (const proto::StaticLibrary* library : request_.libraries) {
      for (const proto::ObjectFile& object : library->objects()) {
        INLAY_ASSIGN_OR_RETURN(std::string path, WriteFile(absl::StrCat(count++, ".o"), object.data()));
        args_.push_back(std::move(path));
      }
    }
    return absl::OkStatus();
  }

  static std::string FindIn(const std::vector<std::string>& dirs, const std::string& file) {
    for (const std::string& dir : dirs) {
      std::string path = JoinPath(dir, file);
      if (access(path.c_str(), R_OK) == 0) return path;
    }
    return "";
  }

  absl::Status AddArchives(const Needs& needs) {
    std::vector<std::string> archives = {"libinlay_artifact_runtime.a"};
    for (const std::string& component : needs.runtime_components) {
      archives.push_back(absl::StrCat("lib", component, "_runtime.a"));
    }
    for (const std::string& archive : archives) {
      const std::string path = FindIn(toolchain_.runtime_dirs, archive);
      if (path.empty()) {
        return absl::NotFoundError(absl::StrCat("no ", archive, " in ", absl::StrJoin(toolchain_.runtime_dirs, ", ")));
      }
      args_.push_back(path);
    }
    args_.insert(args_.end(), toolchain_.static_archives.begin(), toolchain_.static_archives.end());
    return absl::OkStatus();
  }

  absl::Status AddSharedLibraries(const Needs& needs) {
    bool all_here = true;
    args_.push_back("--no-as-needed");
    for (const proto::RequiredLibrary& required : needs.required_libraries) {
      std::string path = FindIn(toolchain_.library_dirs, required.soname());
      if (path.empty()) {
        // Made for another machine: an empty library of that name, so that the loader will look for it.
        INLAY_ASSIGN_OR_RETURN(path, MakeStub(required.soname()));
        all_here = false;
      }
      args_.push_back(std::move(path));
    }
    args_.push_back("--as-needed");
    for (const char* name : {"libtvm_ffi.so", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2"}) {
      const std::string path = FindIn(toolchain_.library_dirs, name);
      if (path.empty()) return absl::NotFoundError(absl::StrCat("linking needs ", name));
      args_.push_back(path);
    }
    args_.push_back(all_here ? "--no-undefined" : "--unresolved-symbols=ignore-all");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> MakeStub(const std::string& soname) {
    const std::string object = absl::StrCat(dir_, "/", soname, ".o"), stub = absl::StrCat(dir_, "/", soname);
    INLAY_RETURN_IF_ERROR(ElfObject(ElfObject::Machine::kX86_64).WriteTo(object));
    SubprocessOptions options;
    options.argv = {toolchain_.lld, "-shared", "-soname", soname, "-o", stub, object};
    options.env = {"LC_ALL=C"};
    INLAY_RETURN_IF_ERROR(RunSubprocess(std::move(options), kLinkTimeout).status());
    return stub;
  }

  absl::Status RunLinker() {
    SubprocessOptions options;
    options.argv = args_;
    options.env = {"LC_ALL=C"};
    INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> process, Subprocess::Start(options));
    const absl::Time deadline = absl::Now() + kLinkTimeout;
    absl::Status status;
    do {
      if (absl::Status cancelled = Cancelled(); !cancelled.ok()) return cancelled;  // ~Subprocess kills
      status = process->Wait(std::min(deadline, absl::Now() + absl::Milliseconds(50)));
    } while (absl::IsDeadlineExceeded(status) && absl::Now() < deadline);
    if (status.ok() || absl::IsDeadlineExceeded(status)) return status;
    return absl::FailedPreconditionError(absl::StrCat("ld.lld: ", status.message(), ": ", process->StderrTail()));
  }

  const LinkToolchain& toolchain_;
  const LinkRequest& request_;
  const std::string dir_;
  std::vector<std::string> args_;
};

absl::Status WriteSafetensorsFile(const ParamWriter& params, const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, FileSystem::Default()->Create(path));
  INLAY_RETURN_IF_ERROR(params.WriteSafetensors([&](absl::string_view data) { return file->Append(data); }));
  return file->Close();
}

}  // namespace

absl::StatusOr<LinkResult> LinkLibrary(const LinkToolchain& toolchain, const LinkRequest& request) {
  if (request.plan == nullptr) return absl::InvalidArgumentError("no plan to link");
  INLAY_RETURN_IF_ERROR(CheckStaticLibraries(request.libraries));
  INLAY_RETURN_IF_ERROR(CheckFunctions(request));
  INLAY_ASSIGN_OR_RETURN(Needs needs, Collect(request));
  INLAY_ASSIGN_OR_RETURN(ParamWriter params, ParamWriter::Make(*request.plan, request.params, request.param_source));
  // In the output's directory: renaming is atomic within one file system.
  INLAY_ASSIGN_OR_RETURN(TempDir dir, TempDir::Create(".inlay_link", DirName(request.output)));
  const std::string library = dir.path() + "/library.so";
  INLAY_RETURN_IF_ERROR(Link(toolchain, request, dir.path()).Run(needs, params, library));
  LinkResult result;
  result.required_libraries = needs.required_libraries;
  if (!request.link_params && !request.params.empty()) {
    const std::string safetensors = dir.path() + "/params";
    INLAY_RETURN_IF_ERROR(WriteSafetensorsFile(params, safetensors));
    result.params_path = request.output + ".safetensors";
    INLAY_RETURN_IF_ERROR(FileSystem::Default()->Rename(safetensors, result.params_path));
  }
  INLAY_RETURN_IF_ERROR(FileSystem::Default()->Rename(library, request.output));
  return result;
}

}  // namespace inlay::artifact
