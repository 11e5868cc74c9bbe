#include "core/runtime/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace inlay::runtime {
namespace {

#if defined(__x86_64__)
constexpr char kArchitecture[] = "x86_64";

enum Register { kEax, kEbx, kEcx, kEdx };
// What the operating system must save and restore for it (bits of XCR0).
enum State : uint64_t { kNone = 0, kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000 };

struct Feature {
  const char* name;  // LLVM's
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"x87", 1, 0, kEdx, 0, kNone},
    {"cx8", 1, 0, kEdx, 8, kNone},
    {"cmov", 1, 0, kEdx, 15, kNone},
    {"mmx", 1, 0, kEdx, 23, kNone},
    {"fxsr", 1, 0, kEdx, 24, kNone},
    {"sse", 1, 0, kEdx, 25, kNone},
    {"sse2", 1, 0, kEdx, 26, kNone},
    {"sse3", 1, 0, kEcx, 0, kNone},
    {"pclmul", 1, 0, kEcx, 1, kNone},
    {"ssse3", 1, 0, kEcx, 9, kNone},
    {"fma", 1, 0, kEcx, 12, kAvx},
    {"cx16", 1, 0, kEcx, 13, kNone},
    {"sse4.1", 1, 0, kEcx, 19, kNone},
    {"sse4.2", 1, 0, kEcx, 20, kNone},
    {"crc32", 1, 0, kEcx, 20, kNone},
    {"movbe", 1, 0, kEcx, 22, kNone},
    {"popcnt", 1, 0, kEcx, 23, kNone},
    {"aes", 1, 0, kEcx, 25, kNone},
    {"xsave", 1, 0, kEcx, 26, kNone},
    {"avx", 1, 0, kEcx, 28, kAvx},
    {"f16c", 1, 0, kEcx, 29, kAvx},
    {"rdrnd", 1, 0, kEcx, 30, kNone},
    {"fsgsbase", 7, 0, kEbx, 0, kNone},
    {"bmi", 7, 0, kEbx, 3, kNone},
    {"avx2", 7, 0, kEbx, 5, kAvx},
    {"bmi2", 7, 0, kEbx, 8, kNone},
    {"avx512f", 7, 0, kEbx, 16, kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512},
    {"rdseed", 7, 0, kEbx, 18, kNone},
    {"adx", 7, 0, kEbx, 19, kNone},
    {"avx512ifma", 7, 0, kEbx, 21, kAvx512},
    {"clflushopt", 7, 0, kEbx, 23, kNone},
    {"clwb", 7, 0, kEbx, 24, kNone},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512},
    {"sha", 7, 0, kEbx, 29, kNone},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512},
    {"gfni", 7, 0, kEcx, 8, kNone},
    {"vaes", 7, 0, kEcx, 9, kAvx},
    {"vpclmulqdq", 7, 0, kEcx, 10, kAvx},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512},
    {"rdpid", 7, 0, kEcx, 22, kNone},
    {"cldemote", 7, 0, kEcx, 25, kNone},
    {"movdiri", 7, 0, kEcx, 27, kNone},
    {"movdir64b", 7, 0, kEcx, 28, kNone},
    {"avx512vp2intersect", 7, 0, kEdx, 8, kAvx512},
    {"serialize", 7, 0, kEdx, 14, kNone},
    {"amx-bf16", 7, 0, kEdx, 22, kAmx},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512},
    {"amx-tile", 7, 0, kEdx, 24, kAmx},
    {"amx-int8", 7, 0, kEdx, 25, kAmx},
    {"sha512", 7, 1, kEax, 0, kAvx},
    {"sm3", 7, 1, kEax, 1, kAvx},
    {"sm4", 7, 1, kEax, 2, kAvx},
    {"avxvnni", 7, 1, kEax, 4, kAvx},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512},
    {"amx-fp16", 7, 1, kEax, 21, kAmx},
    {"avxifma", 7, 1, kEax, 23, kAvx},
    {"avxvnniint8", 7, 1, kEdx, 4, kAvx},
    {"avxneconvert", 7, 1, kEdx, 5, kAvx},
    {"avxvnniint16", 7, 1, kEdx, 10, kAvx},
    {"sahf", 0x80000001, 0, kEcx, 0, kNone},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNone},
    {"sse4a", 0x80000001, 0, kEcx, 6, kNone},
    {"prfchw", 0x80000001, 0, kEcx, 8, kNone},
    {"xop", 0x80000001, 0, kEcx, 11, kAvx},
    {"fma4", 0x80000001, 0, kEcx, 16, kAvx},
    {"tbm", 0x80000001, 0, kEcx, 21, kNone},
    {"clzero", 0x80000008, 0, kEbx, 0, kNone},
    {"wbnoinvd", 0x80000008, 0, kEbx, 9, kNone},
    {"xsaveopt", 13, 1, kEax, 0, kNone},
    {"xsavec", 13, 1, kEax, 1, kNone},
    {"xsaves", 13, 1, kEax, 3, kNone},
};

uint64_t EnabledStates() {
  unsigned regs[4];
  if (!__get_cpuid(1, &regs[0], &regs[1], &regs[2], &regs[3]) || (regs[kEcx] & (1u << 27)) == 0) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool Has(const Feature& feature) {
  unsigned regs[4] = {};
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return false;
  if ((regs[feature.reg] & (1u << feature.bit)) == 0) return false;
  if ((EnabledStates() & feature.state) != feature.state) return false;
  // Linux gives a process the tile registers only when it asks (ARCH_REQ_XCOMP_PERM of XTILEDATA).
  if (feature.state == kAmx) return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return true;
}

// True where the name stands for no instruction that is known here.
bool HasByName(const std::string& name) {
  for (const Feature& feature : kFeatures) {
    if (name == feature.name) return Has(feature);
  }
  return true;
}
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "aarch64";
bool HasByName(const std::string&) { return true; }
#endif

}  // namespace

Status CheckCpu(const std::string& triple, const std::string& features) {
  const std::string architecture = triple.substr(0, triple.find('-'));
  if (!triple.empty() && architecture != kArchitecture) {
    return FailedPrecondition("built for " + architecture + ", this machine is " + kArchitecture);
  }
  std::string missing;
  int count = 0;
  for (size_t begin = 0; begin < features.size();) {
    size_t end = features.find(',', begin);
    if (end == std::string::npos) end = features.size();
    const std::string word = features.substr(begin, end - begin);
    begin = end + 1;
    if (word.size() < 2 || word[0] != '+' || HasByName(word.substr(1))) continue;
    missing += (count++ == 0 ? "" : ", ") + word.substr(1);
  }
  if (count == 0) return Status();
  return FailedPrecondition("needs " + missing + "; this CPU lacks " + (count == 1 ? "it" : "them"));
}

}  // namespace inlay::runtime
