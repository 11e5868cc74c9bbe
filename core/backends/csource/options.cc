#include "core/backends/csource/options.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/backend/external_compilers.h"
#include "core/backends/csource/source_filter.h"
#include "core/base/status_macros.h"
#include "core/target/x86_cpus.h"

namespace inlay::csource {
namespace {

constexpr size_t kMaxFlags = 64;

// -f options are listed one by one: among gcc's and clang's hundreds there are those that load plug-ins, write files
// where they are told to, and take code out of position or out of the ABI.
const std::set<absl::string_view>& AllowedF() {
  static const auto* names = new std::set<absl::string_view>{"associative-math",
                                                             "cx-limited-range",
                                                             "fast-math",
                                                             "finite-math-only",
                                                             "gcse",
                                                             "if-conversion",
                                                             "inline",
                                                             "inline-functions",
                                                             "inline-small-functions",
                                                             "ipa-cp-clone",
                                                             "ipa-pta",
                                                             "ivopts",
                                                             "loop-interchange",
                                                             "loop-nest-optimize",
                                                             "loop-unroll-and-jam",
                                                             "math-errno",
                                                             "merge-constants",
                                                             "modulo-sched",
                                                             "move-loop-invariants",
                                                             "omit-frame-pointer",
                                                             "peel-loops",
                                                             "predictive-commoning",
                                                             "prefetch-loop-arrays",
                                                             "reciprocal-math",
                                                             "rename-registers",
                                                             "reorder-blocks",
                                                             "rounding-math",
                                                             "schedule-insns",
                                                             "schedule-insns2",
                                                             "signed-zeros",
                                                             "slp-vectorize",
                                                             "split-loops",
                                                             "strict-aliasing",
                                                             "strict-overflow",
                                                             "trapping-math",
                                                             "tree-loop-distribution",
                                                             "tree-loop-vectorize",
                                                             "tree-pre",
                                                             "tree-slp-vectorize",
                                                             "tree-vectorize",
                                                             "unroll-all-loops",
                                                             "unroll-loops",
                                                             "unsafe-math-optimizations",
                                                             "unswitch-loops",
                                                             "vectorize",
                                                             "web"};
  return *names;
}

absl::Status Refuse(const std::string& flag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("cflags: the option '", flag, "' ", why));
}

bool IsWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-';
  });
}

bool IsName(absl::string_view text) {
  return IsWord(text) && !absl::ascii_isdigit(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

absl::Status CheckDefine(const std::string& flag) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(absl::string_view(flag).substr(2), absl::MaxSplits('=', 1));
  const bool fine = IsName(parts.first) && IsAllowedName(parts.first) &&
                    (parts.second.empty() || (IsWord(parts.second) && IsAllowedName(parts.second)));
  return fine ? absl::OkStatus() : Refuse(flag, "is not of the form -DNAME or -DNAME=word");
}

absl::Status CheckF(const std::string& flag) {
  absl::string_view name = absl::string_view(flag).substr(2);
  if (absl::StartsWith(name, "fp-contract=")) {
    name.remove_prefix(12);
    if (name == "fast" || name == "on" || name == "off") return absl::OkStatus();
  }
  if (absl::StartsWith(name, "no-")) name.remove_prefix(3);
  if (AllowedF().count(name) > 0) return absl::OkStatus();
  return Refuse(flag, absl::StrCat("is not allowed; of -f (and -fno-) there are fp-contract=fast|on|off, ",
                                   absl::StrJoin(AllowedF(), ", ")));
}

// What the code may then use must be what the target has: else it would be an illegal instruction where it runs.
absl::Status CheckFeatures(const std::string& flag, const std::set<std::string>& features,
                           const target::Target& target) {
  for (const std::string& feature : features) {
    // No code depends on these; compilers' lists differ in them.
    static const std::set<std::string> ignored = {"x87", "cx8", "mmx", "fxsr", "xsave", "evex512", "crc32"};
    if (ignored.count(feature) > 0 || target.HasFeature(feature)) continue;
    return Refuse(flag, absl::StrCat("asks for ", feature, ", which the target '", target.attr("mcpu"),
                                     "' does not have: name a CPU that has it in the device's -mcpu"));
  }
  return absl::OkStatus();
}

absl::Status CheckM(const std::string& flag, const target::Target& target) {
  const absl::string_view name = absl::string_view(flag).substr(2);
  if (absl::StartsWith(name, "arch=")) {
    const absl::string_view cpu = name.substr(5);
    if (cpu == "native") return Refuse(flag, "means the server's machine; name the CPU");
    const target::Features* features = target::X86CpuFeatures(cpu);
    if (features == nullptr) return Refuse(flag, "names a CPU that is not known");
    return CheckFeatures(flag, *features, target);
  }
  if (absl::StartsWith(name, "tune=")) {
    const absl::string_view cpu = name.substr(5);
    if (cpu == "native") return Refuse(flag, "means the server's machine; name the CPU");
    return IsWord(cpu) ? absl::OkStatus() : Refuse(flag, "names no CPU");
  }
  if (name == "prefer-vector-width=128" || name == "prefer-vector-width=256" || name == "prefer-vector-width=512") {
    return absl::OkStatus();
  }
  const bool off = absl::StartsWith(name, "no-");
  const std::string feature(off ? name.substr(3) : name);
  if (!target::IsX86Feature(feature)) {
    return Refuse(flag,
                  "is not allowed; of -m there are -march=CPU, -mtune=CPU, -mprefer-vector-width=N and the "
                  "instruction sets (-mavx2, -mno-fma)");
  }
  if (off && feature.find("sse") == 0 && feature < "sse3") return Refuse(flag, "breaks the calling convention");
  return off ? absl::OkStatus() : CheckFeatures(flag, {feature}, target);
}

// As compilers spell what LLVM calls so; instruction sets that a compiler may use by itself. Not in here: those that
// only intrinsics reach and that old compilers do not know, and those that every x86-64 has.
const std::vector<std::pair<const char*, const char*>>& FeatureFlags() {
  static const auto* flags = new std::vector<std::pair<const char*, const char*>>{{"sse3", "-msse3"},
                                                                                  {"ssse3", "-mssse3"},
                                                                                  {"sse4.1", "-msse4.1"},
                                                                                  {"sse4.2", "-msse4.2"},
                                                                                  {"popcnt", "-mpopcnt"},
                                                                                  {"avx", "-mavx"},
                                                                                  {"avx2", "-mavx2"},
                                                                                  {"fma", "-mfma"},
                                                                                  {"f16c", "-mf16c"},
                                                                                  {"bmi", "-mbmi"},
                                                                                  {"bmi2", "-mbmi2"},
                                                                                  {"lzcnt", "-mlzcnt"},
                                                                                  {"movbe", "-mmovbe"},
                                                                                  {"avx512f", "-mavx512f"},
                                                                                  {"avx512cd", "-mavx512cd"},
                                                                                  {"avx512bw", "-mavx512bw"},
                                                                                  {"avx512dq", "-mavx512dq"},
                                                                                  {"avx512vl", "-mavx512vl"},
                                                                                  {"avx512vnni", "-mavx512vnni"},
                                                                                  {"avx512bf16", "-mavx512bf16"}};
  return *flags;
}

}  // namespace

absl::Status CheckFlag(const std::string& flag, const target::Target& target) {
  static const std::set<absl::string_view> levels = {"-O0", "-O1", "-O2", "-O3", "-Os", "-Og", "-Ofast"};
  if (levels.count(flag) > 0) return absl::OkStatus();
  if (absl::StartsWith(flag, "-D")) return CheckDefine(flag);
  if (absl::StartsWith(flag, "-f")) return CheckF(flag);
  if (absl::StartsWith(flag, "-m")) return CheckM(flag, target);
  return Refuse(flag, "is not allowed; there are -O0 to -O3, -Os, -Og, -Ofast, -D, -m and -f");
}

const std::vector<target::AttrSpec>& Attrs() {
  using Type = target::AttrSpec::Type;
  static const auto* attrs = new std::vector<target::AttrSpec>{
      {"cc", Type::kString, "gcc", "the compiler, by its name in the server's configuration"},
      {"cflags", Type::kString, "-O3", "its options: -O, -D, -m and some of -f"},
      {"kernels", Type::kString, "", "kernels of your own, as JSON"}};
  return *attrs;
}

absl::StatusOr<Options> ParseOptions(const target::Target& target, const target::Target& codegen_target) {
  Options options;
  INLAY_RETURN_IF_ERROR(target::CheckAttrs(codegen_target.attrs, Attrs(), "the codegen target csource"));
  const backend::ExternalCompilers& compilers = backend::ExternalCompilers::Global();
  std::string cc = codegen_target.attr("cc");
  if (compilers.paths().empty()) {
    return absl::FailedPreconditionError(
        "csource needs a C compiler, and this server has none: install gcc or clang, or name one in its configuration "
        "(compilers)");
  }
  if (cc.empty()) {
    cc = "gcc";
    if (compilers.paths().count(cc) == 0) cc = compilers.paths().begin()->first;
  }
  INLAY_ASSIGN_OR_RETURN(options.compiler_path, Annotate(compilers.Find(cc), "the codegen target csource, cc"));
  options.cflags = absl::StrSplit(codegen_target.attr("cflags"), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  if (options.cflags.size() > kMaxFlags) return absl::InvalidArgumentError("cflags: more than 64 options");
  for (const std::string& flag : options.cflags) INLAY_RETURN_IF_ERROR(CheckFlag(flag, target));
  INLAY_ASSIGN_OR_RETURN(options.kernels, ParseUserKernels(codegen_target.attr("kernels")));
  return options;
}

std::vector<std::string> CompilerArguments(const target::Target& target, const Options& options) {
  std::vector<std::string> args = {"-march=x86-64"};
  for (const auto& [feature, flag] : FeatureFlags()) {
    if (target.HasFeature(feature)) args.push_back(flag);
  }
  args.push_back("-O3");
  // Off by default, so that loops over math functions and comparisons become vector code; no value depends on them.
  args.insert(args.end(), {"-fno-math-errno", "-fno-trapping-math"});
  args.insert(args.end(), options.cflags.begin(), options.cflags.end());
  // Not to be overridden.
  for (const char* flag : {"-std=gnu11", "-fPIC", "-fwrapv", "-fopenmp-simd", "-fno-common", "-fno-stack-protector",
                           "-fno-asynchronous-unwind-tables", "-fno-ident", "-fcf-protection=none", "-w"}) {
    args.emplace_back(flag);
  }
  return args;
}

}  // namespace inlay::csource
