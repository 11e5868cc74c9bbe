#include "core/artifact/linker.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/artifact/elf_object.h"
#include "core/artifact/imports.h"
#include "core/artifact/param_writer.h"
#include "core/artifact/static_library.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::artifact {
namespace {

constexpr int kLibraryFormatVersion = 1;  // core/runtime/exported/compatibility.h
// The newest version of glibc's symbols that an artifact refers to (Debian 12, Ubuntu 22.04 have it); a test holds it.
constexpr char kGlibc[] = "2.35";
// Bigger parameters must not lie between code and data: x86-64 reaches 2 GiB.
constexpr uint64_t kLargeParams = uint64_t{1} << 30;
constexpr absl::Duration kLinkTimeout = absl::Minutes(10);

struct NeededLibrary {
  proto::RequiredLibrary required;
  std::set<std::string> backends;
  std::vector<std::string> functions;  // that are called in it
};

// What all of the libraries together need.
struct Needs {
  std::string triple, cpu, features;
  std::vector<NeededLibrary> needed_libraries;
  std::vector<std::string> runtime_components;
  std::set<std::string> linked_packages;
  nlohmann::json backends = nlohmann::json::array();
};

absl::StatusOr<Needs> Collect(const LinkRequest& request) {
  Needs needs;
  std::set<std::string> features, components;
  std::map<std::string, size_t> sonames;
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
      const auto [it, fresh] = sonames.insert({required.soname(), needs.needed_libraries.size()});
      if (fresh) needs.needed_libraries.push_back({required, {}, {}});
      needs.needed_libraries[it->second].backends.insert(manifest.backend());
    }
    components.insert(manifest.runtime_components().begin(), manifest.runtime_components().end());
    needs.linked_packages.insert(manifest.linked_packages().begin(), manifest.linked_packages().end());
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

// What a machine must have, in one line: two libraries with the same line run on the same machines.
std::string Compatibility(const Needs& needs) {
  std::string line =
      absl::StrCat("inlay_library=", kLibraryFormatVersion, " kernel_abi=", INLAY_KERNEL_ABI_VERSION,
                   " triple=", needs.triple, " features=", needs.features, " glibc>=", kGlibc, " libtvm_ffi.so");
  for (const NeededLibrary& library : needs.needed_libraries) {
    absl::StrAppend(&line, " ", library.required.soname());
    if (!library.required.version().empty()) absl::StrAppend(&line, "=", library.required.version());
  }
  return line;
}

std::string ManifestJson(const LinkRequest& request, const Needs& needs, const ParamWriter& params) {
  nlohmann::json json = {{"inlay_library", kLibraryFormatVersion},
                         {"kernel_abi", INLAY_KERNEL_ABI_VERSION},
                         {"compatibility", Compatibility(needs)},
                         {"target", {{"triple", needs.triple}, {"cpu", needs.cpu}, {"features", needs.features}}},
                         {"glibc", kGlibc},
                         {"backends", needs.backends},
                         {"required_libraries", nlohmann::json::array()},
                         {"linked_packages", needs.linked_packages},
                         {"params_linked", request.link_params},
                         {"param_offsets", request.link_params ? params.offsets() : std::vector<uint64_t>()},
                         {"plan", nlohmann::json::parse(request.plan->ToJson())}};
  for (const NeededLibrary& library : needs.needed_libraries) {
    json["required_libraries"].push_back({{"soname", library.required.soname()},
                                          {"package", library.required.package()},
                                          {"version", library.required.version()},
                                          {"backends", library.backends},
                                          {"functions", library.functions}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A linker would take other files too: scripts, archives, shared libraries, which name files of this machine.
absl::Status CheckAddon(const proto::ObjectFile& addon) {
  const std::string& data = addon.data();
  Elf64_Ehdr header;
  bool fits = data.size() >= sizeof header;
  if (fits) {
    std::memcpy(&header, data.data(), sizeof header);
    fits = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
           header.e_type == ET_REL && header.e_machine == EM_X86_64;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the addon '", addon.name(), "' is no relocatable object for x86_64 (cc -c -fPIC makes one)"));
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

  absl::Status Run(Needs* needs, const ParamWriter& params, const std::string& output) {
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
             "--no-dependent-libraries",  // an addon could name files of this machine
             "--undefined=__tvm_ffi_main"};
    if (request_.c_interface) args_.push_back("--undefined=inlay_model_run");
    if (request_.plan->openmp) args_.push_back("--undefined=inlay_openmp_parallel_for");
    INLAY_RETURN_IF_ERROR(AddVersionScript());
    args_.push_back(toolchain_.crti);
    args_.push_back(toolchain_.crt_begin);
    INLAY_RETURN_IF_ERROR(AddObjects());
    INLAY_RETURN_IF_ERROR(FindArchives(*needs));
    INLAY_RETURN_IF_ERROR(AddImports(needs));
    const std::string tables = dir_ + "/tables.o";
    INLAY_RETURN_IF_ERROR(WriteTables(request_, ManifestJson(request_, *needs, params), params, tables));
    INLAY_RETURN_IF_ERROR(Cancelled());
    args_.push_back(tables);
    args_.insert(args_.end(), archives_.begin(), archives_.end());
    args_.insert(args_.end(), toolchain_.static_archives.begin(), toolchain_.static_archives.end());
    args_.push_back("--as-needed");
    args_.insert(args_.end(), shared_libraries_.begin(), shared_libraries_.end());
    args_.push_back("--no-undefined");
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
    INLAY_ASSIGN_OR_RETURN(
        std::string path,
        WriteFile("exports.ver", absl::StrCat("{ global: __tvm_ffi_*;", request_.c_interface ? " inlay_model_*;" : "",
                                              " local: *; };\n")));
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
    for (const proto::ObjectFile* addon : request_.addons) {
      INLAY_RETURN_IF_ERROR(CheckAddon(*addon));
      INLAY_ASSIGN_OR_RETURN(std::string path, WriteFile(absl::StrCat(count++, ".o"), addon->data()));
      args_.push_back(std::move(path));
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

  // The runtime, those of the backends' components, and the shared libraries that the dynamic linker will look for.
  absl::Status FindArchives(const Needs& needs) {
    std::vector<std::string> archives = {"libinlay_artifact_runtime.a"};
    for (const std::string& component : needs.runtime_components) {
      archives.push_back(absl::StrCat("lib", component, "_runtime.a"));
    }
    for (const std::string& archive : archives) {
      archives_.push_back(FindIn(toolchain_.runtime_dirs, archive));
      if (!archives_.back().empty()) continue;
      return absl::NotFoundError(absl::StrCat("no ", archive, " in ", absl::StrJoin(toolchain_.runtime_dirs, ", ")));
    }
    for (const char* name : {"libtvm_ffi.so", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2"}) {
      shared_libraries_.push_back(FindIn(toolchain_.library_dirs, name));
      if (shared_libraries_.back().empty()) return absl::NotFoundError(absl::StrCat("linking needs ", name));
    }
    return absl::OkStatus();
  }

  // The libraries that the manifest names are loaded with the model (imports.h). Made for another machine, they may be
  // missing here.
  absl::Status AddImports(Needs* needs) {
    ImportRequest request;
    // Of the runtime, only what drives libgomp calls any of them.
    request.users.assign(archives_.begin() + (request_.plan->openmp ? 0 : 1), archives_.end());
    request.carried = toolchain_.static_archives;
    request.carried.push_back(archives_[0]);
    request.carried.insert(request.carried.end(), shared_libraries_.begin(), shared_libraries_.end());
    for (const NeededLibrary& library : needs->needed_libraries) {
      request.library_paths.push_back(FindIn(toolchain_.library_dirs, library.required.soname()));
    }
    INLAY_ASSIGN_OR_RETURN(auto imports, FindImports(request));
    const std::string path = dir_ + "/imports.o";
    INLAY_RETURN_IF_ERROR(WriteImports(imports, path));
    for (size_t i = 0; i < imports.size(); ++i) needs->needed_libraries[i].functions = std::move(imports[i]);
    args_.push_back(path);
    return absl::OkStatus();
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
  std::vector<std::string> args_, archives_, shared_libraries_;
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
  INLAY_RETURN_IF_ERROR(Link(toolchain, request, dir.path()).Run(&needs, params, library));
  LinkResult result;
  result.linked_packages.assign(needs.linked_packages.begin(), needs.linked_packages.end());
  for (NeededLibrary& needed : needs.needed_libraries) result.required_libraries.push_back(std::move(needed.required));
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
