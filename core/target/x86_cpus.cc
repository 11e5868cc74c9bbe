#include "core/target/x86_cpus.h"

#include "absl/strings/str_split.h"

namespace inlay::target {
namespace {

struct Row {
  absl::string_view name;
  absl::string_view features;
};

// What LLVM 19's llvm::X86::getFeaturesForCPU answers, less what no generated code uses (kSystemFeatures), so that a
// hypervisor which hides SGX or protection keys does not make a machine unfit. ImpliedFeatures complete the rows.
constexpr Row kCpus[] = {
    {"x86-64", "cmov cx8 fxsr mmx sse2 x87"},
    {"x86-64-v2", "cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse4.2 x87"},
    {"x86-64-v3", "avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf x87 xsave"},
    {"x86-64-v4",
     "avx512bw avx512cd avx512dq avx512vl bmi bmi2 cmov crc32 cx16 cx8 fxsr lzcnt mmx movbe popcnt "
     "sahf x87 xsave"},
    {"nehalem", "cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse4.2 x87"},
    {"westmere", "cmov crc32 cx16 cx8 fxsr mmx pclmul popcnt sahf sse4.2 x87"},
    {"sandybridge", "avx cmov crc32 cx16 cx8 fxsr mmx pclmul popcnt sahf x87 xsave"},
    {"ivybridge", "cmov crc32 cx16 cx8 f16c fxsr mmx pclmul popcnt sahf x87 xsave"},
    {"haswell", "avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt sahf x87 xsave"},
    {"broadwell",
     "adx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf "
     "x87 xsave"},
    {"skylake",
     "adx aes avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt prfchw "
     "sahf x87 xsave"},
    {"skylake-avx512",
     "adx aes avx512bw avx512cd avx512dq avx512vl bmi bmi2 cmov crc32 cx16 cx8 fxsr lzcnt mmx movbe "
     "pclmul popcnt prfchw sahf x87 xsave"},
    {"cascadelake",
     "adx aes avx512bw avx512cd avx512dq avx512vl avx512vnni bmi bmi2 cmov crc32 cx16 cx8 fxsr lzcnt "
     "mmx movbe pclmul popcnt prfchw sahf x87 xsave"},
    {"cooperlake",
     "adx aes avx512bf16 avx512cd avx512dq avx512vl avx512vnni bmi bmi2 cmov crc32 cx16 cx8 fxsr "
     "lzcnt mmx movbe pclmul popcnt prfchw sahf x87 xsave"},
    {"cannonlake",
     "adx aes avx512cd avx512dq avx512ifma avx512vbmi avx512vl bmi bmi2 cmov crc32 cx16 cx8 fxsr "
     "lzcnt mmx movbe pclmul popcnt prfchw sahf sha x87 xsave"},
    {"icelake-client",
     "adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni "
     "avx512vpopcntdq bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx movbe popcnt prfchw sahf sha "
     "vaes vpclmulqdq x87 xsave"},
    {"icelake-server",
     "adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni "
     "avx512vpopcntdq bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx movbe popcnt prfchw sahf sha "
     "vaes vpclmulqdq x87 xsave"},
    {"tigerlake",
     "adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni "
     "avx512vp2intersect avx512vpopcntdq bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx movbe "
     "popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"rocketlake",
     "adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni "
     "avx512vpopcntdq bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx movbe popcnt prfchw sahf sha "
     "vaes vpclmulqdq x87 xsave"},
    {"sapphirerapids",
     "adx amx-bf16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512fp16 avx512ifma avx512vbmi "
     "avx512vbmi2 avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx "
     "movbe popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"emeraldrapids",
     "adx amx-bf16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512fp16 avx512ifma avx512vbmi "
     "avx512vbmi2 avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cmov crc32 cx16 cx8 fxsr gfni lzcnt mmx "
     "movbe popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"graniterapids",
     "adx amx-bf16 amx-fp16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512fp16 avx512ifma "
     "avx512vbmi avx512vbmi2 avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cmov crc32 cx16 cx8 fxsr "
     "gfni lzcnt mmx movbe popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"alderlake",
     "adx avxvnni bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni lzcnt mmx movbe popcnt prfchw sahf "
     "sha vaes vpclmulqdq x87 xsave"},
    {"raptorlake",
     "adx avxvnni bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni lzcnt mmx movbe popcnt prfchw sahf "
     "sha vaes vpclmulqdq x87 xsave"},
    {"meteorlake",
     "adx avxvnni bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni lzcnt mmx movbe popcnt prfchw sahf "
     "sha vaes vpclmulqdq x87 xsave"},
    {"arrowlake",
     "adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni "
     "lzcnt mmx movbe popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"lunarlake",
     "adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cmov crc32 cx16 cx8 f16c fma "
     "fxsr gfni lzcnt mmx movbe popcnt prfchw sahf sha sha512 sm3 sm4 vaes vpclmulqdq x87 xsave"},
    {"sierraforest",
     "adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni "
     "lzcnt mmx movbe popcnt prfchw sahf sha vaes vpclmulqdq x87 xsave"},
    {"znver1",
     "adx aes avx2 bmi bmi2 crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf "
     "sha sse4a x87 xsave"},
    {"znver2",
     "adx aes avx2 bmi bmi2 crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf "
     "sha sse4a x87 xsave"},
    {"znver3",
     "adx bmi bmi2 crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt prfchw sahf sha sse4a vaes "
     "vpclmulqdq x87 xsave"},
    {"znver4",
     "adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vpopcntdq bmi bmi2 crc32 cx16 cx8 fxsr gfni lzcnt mmx movbe popcnt prfchw sahf "
     "sha sse4a vaes vpclmulqdq x87 xsave"},
    {"znver5",
     "adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vp2intersect avx512vpopcntdq avxvnni bmi bmi2 crc32 cx16 cx8 fxsr gfni lzcnt "
     "mmx movbe popcnt prfchw sahf sha sse4a vaes vpclmulqdq x87 xsave"},
    {"btver2", "aes bmi crc32 cx16 cx8 f16c fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf sse4a x87 xsave"},
    {"bdver4",
     "aes avx2 bmi bmi2 crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf tbm "
     "x87 xop xsave"},
};

// llvm::X86::updateImpliedFeatures, transitively closed. LLVM adds evex512 to avx512f when it reads a feature string.
constexpr Row kImplied[] = {
    {"adx", ""},
    {"aes", "sse sse2"},
    {"amx-bf16", "amx-tile"},
    {"amx-fp16", "amx-tile"},
    {"amx-int8", "amx-tile"},
    {"amx-tile", ""},
    {"avx", "sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx2", "avx sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512bf16", "avx avx2 avx512bw avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512bitalg", "avx avx2 avx512bw avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512bw", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512cd", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512dq", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512f", "avx avx2 evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512fp16", "avx avx2 avx512bw avx512dq avx512f avx512vl evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512ifma", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vbmi", "avx avx2 avx512bw avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vbmi2", "avx avx2 avx512bw avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vl", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vnni", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vp2intersect", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avx512vpopcntdq", "avx avx2 avx512f evex512 f16c fma sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avxifma", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avxneconvert", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avxvnni", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avxvnniint16", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"avxvnniint8", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"bmi", ""},
    {"bmi2", ""},
    {"cmov", ""},
    {"crc32", ""},
    {"cx16", ""},
    {"cx8", ""},
    {"evex512", ""},
    {"f16c", "avx sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"fma", "avx sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"fma4", "avx sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3"},
    {"fxsr", ""},
    {"gfni", "sse sse2"},
    {"lzcnt", ""},
    {"mmx", ""},
    {"movbe", ""},
    {"pclmul", "sse sse2"},
    {"popcnt", ""},
    {"prfchw", ""},
    {"sahf", ""},
    {"sha", "sse sse2"},
    {"sha512", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"sm3", "avx sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"sm4", "avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"sse", ""},
    {"sse2", "sse"},
    {"sse3", "sse sse2"},
    {"sse4.1", "sse sse2 sse3 ssse3"},
    {"sse4.2", "sse sse2 sse3 sse4.1 ssse3"},
    {"sse4a", "sse sse2 sse3"},
    {"ssse3", "sse sse2 sse3"},
    {"tbm", ""},
    {"vaes", "aes avx avx2 sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"vpclmulqdq", "avx pclmul sse sse2 sse3 sse4.1 sse4.2 ssse3"},
    {"x87", ""},
    {"xop", "avx fma4 sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3"},
    {"xsave", ""},
};

constexpr absl::string_view kSystemFeatures =
    "sgx pku shstk enqcmd uintr kl widekl pconfig invpcid wbnoinvd clzero mwaitx rdpru hreset ptwrite "
    "serialize waitpkg cldemote tsxldtrk lwp xsavec xsaveopt xsaves fsgsbase clwb clflushopt rdrnd "
    "rdseed rdpid prefetchi movdir64b movdiri cmpccxadd";

Features Split(absl::string_view words) {
  std::vector<absl::string_view> parts = absl::StrSplit(words, ' ', absl::SkipEmpty());
  return Features(parts.begin(), parts.end());
}

const Row* FindImplied(absl::string_view feature) {
  for (const Row& row : kImplied) {
    if (row.name == feature) return &row;
  }
  return nullptr;
}

}  // namespace

// Measured on Emerald Rapids alone.
static X86Core Mesh(X86Core core) {
  core.far_caches = true;
  return core;
}

X86Core X86CpuCore(absl::string_view cpu) {
  constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  static const auto* table = new std::map<std::string, X86Core, std::less<>>{
      {"x86-64-v4", {32 * kKiB, kMiB}},
      {"nehalem", {32 * kKiB, 256 * kKiB}},
      {"westmere", {32 * kKiB, 256 * kKiB}},
      {"sandybridge", {32 * kKiB, 256 * kKiB}},
      {"ivybridge", {32 * kKiB, 256 * kKiB}},
      {"haswell", {32 * kKiB, 256 * kKiB}},
      {"broadwell", {32 * kKiB, 256 * kKiB}},
      {"skylake", {32 * kKiB, 256 * kKiB}},
      {"skylake-avx512", Mesh({32 * kKiB, kMiB})},
      {"cascadelake", Mesh({32 * kKiB, kMiB})},
      {"cooperlake", Mesh({32 * kKiB, kMiB})},
      {"cannonlake", {32 * kKiB, 256 * kKiB, 1}},
      {"icelake-client", {48 * kKiB, 512 * kKiB, 1}},
      {"icelake-server", Mesh({48 * kKiB, 1280 * kKiB})},
      {"tigerlake", {48 * kKiB, 1280 * kKiB, 1}},
      {"rocketlake", {48 * kKiB, 512 * kKiB, 1}},
      {"sapphirerapids", Mesh({48 * kKiB, 2 * kMiB})},
      {"emeraldrapids", Mesh({48 * kKiB, 2 * kMiB})},
      {"graniterapids", Mesh({48 * kKiB, 2 * kMiB})},
      // The efficient cores of hybrids have 32 KiB and a fourth of 2 MiB and more.
      {"alderlake", {32 * kKiB, 512 * kKiB}},
      {"raptorlake", {32 * kKiB, kMiB}},
      {"meteorlake", {32 * kKiB, 512 * kKiB}},
      {"arrowlake", {32 * kKiB, kMiB}},
      {"lunarlake", {32 * kKiB, kMiB}},
      {"sierraforest", {32 * kKiB, kMiB}},
      {"znver3", {32 * kKiB, 512 * kKiB, 2, /*far_caches=*/false, /*slow_starts=*/true}},
      {"znver4", {32 * kKiB, kMiB, 1}},
      {"znver5", {48 * kKiB, kMiB}},
      {"bdver4", {16 * kKiB, kMiB}},
  };
  const auto it = table->find(cpu);
  return it == table->end() ? X86Core{32 * kKiB, 512 * kKiB} : it->second;
}

const Features* X86CpuFeatures(absl::string_view cpu) {
  static const auto* table = [] {
    auto* t = new std::map<std::string, Features, std::less<>>;
    for (const Row& row : kCpus) {
      Features features;
      for (const std::string& f : Split(row.features)) EnableX86Feature(f, &features);
      t->emplace(row.name, std::move(features));
    }
    return t;
  }();
  auto it = table->find(cpu);
  return it == table->end() ? nullptr : &it->second;
}

namespace {

constexpr absl::string_view kAmd = "AuthenticAMD", kIntel = "GenuineIntel";

// "": not in the table.
absl::string_view CpuOfModel(absl::string_view vendor, uint32_t family, uint32_t model, const Features& features) {
  if (vendor == kAmd) {
    if (family == 0x17) return model >= 0x30 ? "znver2" : "znver1";
    if (family == 0x19) return (model >= 0x10 && model <= 0x1f) || model >= 0x60 ? "znver4" : "znver3";
    if (family == 0x1a) return "znver5";
  }
  if (vendor != kIntel || family != 6) return "";
  switch (model) {  // clang-format off
    case 0x3c: case 0x3f: case 0x45: case 0x46: return "haswell";
    case 0x3d: case 0x47: case 0x4f: case 0x56: return "broadwell";
    case 0x4e: case 0x5e: case 0x8e: case 0x9e: case 0xa5: case 0xa6: return "skylake";
    case 0x55:
      return features.count("avx512bf16") ? "cooperlake" : features.count("avx512vnni") ? "cascadelake" : "skylake-avx512";
    case 0x7d: case 0x7e: return "icelake-client";
    case 0x6a: case 0x6c: return "icelake-server";
    case 0x8c: case 0x8d: return "tigerlake";
    case 0xa7: return "rocketlake";
    case 0x8f: return "sapphirerapids";
    case 0xcf: return "emeraldrapids";
    case 0xad: return "graniterapids";
    case 0x97: case 0x9a: return "alderlake";
    case 0xb7: case 0xba: case 0xbf: return "raptorlake";
    case 0xaa: case 0xac: return "meteorlake";
  }  // clang-format on
  return "";
}

// What each generation of servers brought, newest first.
struct Telling {
  absl::string_view vendor, feature, cpu;
};
constexpr Telling kTelling[] = {
    {kIntel, "amx-fp16", "graniterapids"},    {kIntel, "amx-bf16", "sapphirerapids"},
    {kIntel, "avx512fp16", "sapphirerapids"}, {kIntel, "avx512vbmi2", "icelake-server"},
    {kIntel, "avx512bf16", "cooperlake"},     {kIntel, "avx512vnni", "cascadelake"},
    {kIntel, "avx512bw", "skylake-avx512"},   {kAmd, "avx512vp2intersect", "znver5"},
    {kAmd, "avx512vbmi2", "znver4"},
};

}  // namespace

std::string X86CpuOf(absl::string_view vendor, uint32_t family, uint32_t model, const Features& features) {
  const absl::string_view named = CpuOfModel(vendor, family, model, features);
  for (const Telling& row : kTelling) {
    if (row.vendor != vendor || features.count(std::string(row.feature)) == 0) continue;
    if (!named.empty() && X86CpuFeatures(named)->count(std::string(row.feature)) != 0) break;
    return std::string(row.cpu);
  }
  if (!named.empty()) return std::string(named);
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    const Features& needed = *X86CpuFeatures(level);
    if (std::includes(features.begin(), features.end(), needed.begin(), needed.end())) return level;
  }
  return "x86-64";
}

std::vector<std::string> X86CpuNames() {
  std::vector<std::string> names;
  for (const Row& row : kCpus) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> X86FeatureNames() {
  std::vector<std::string> names;
  for (const Row& row : kImplied) names.emplace_back(row.name);
  return names;
}

bool IsX86Feature(absl::string_view feature) { return FindImplied(feature) != nullptr; }

bool IsX86SystemFeature(absl::string_view feature) {
  static const auto* system = new Features(Split(kSystemFeatures));
  return system->count(std::string(feature)) > 0;
}

void EnableX86Feature(absl::string_view feature, Features* features) {
  features->emplace(feature);
  if (const Row* row = FindImplied(feature)) {
    for (const std::string& f : Split(row->features)) features->insert(f);
  }
}

void DisableX86Feature(absl::string_view feature, Features* features) {
  for (auto it = features->begin(); it != features->end();) {
    const Row* row = FindImplied(*it);
    const bool needs = *it == feature || (row != nullptr && Split(row->features).count(std::string(feature)) > 0);
    it = needs ? features->erase(it) : std::next(it);
  }
}

}  // namespace inlay::target
