// HostTarget: CPUID and XGETBV. The CPU's name chooses LLVM's tuning; what code may use is only what CPUID reports and
// the operating system saves (XCR0), so a virtual machine that hides AVX-512 gets none.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/target/target.h"
#include "core/target/x86_cpus.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace inlay::target {

#if defined(__x86_64__)
namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers Cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // zeros where there is no such leaf
  return r;
}

uint64_t Xcr0() {
  uint32_t a, d;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (static_cast<uint64_t>(d) << 32) | a;
}

bool Bit(uint32_t word, int bit) { return (word >> bit) & 1; }

enum class State { kNone, kAvx, kAvx512, kAmx };

Features HostFeatures() {
  const Registers l1 = Cpuid(1), l7 = Cpuid(7), l71 = Cpuid(7, 1), e1 = Cpuid(0x80000001);
  const uint64_t xcr0 = Bit(l1.c, 27) ? Xcr0() : 0;
  const bool avx = (xcr0 & 0x6) == 0x6, avx512 = avx && (xcr0 & 0xe0) == 0xe0, amx = (xcr0 & 0x60000) == 0x60000;
  const struct {
    const char* name;
    bool present;
    State state;
  } rows[] = {
      {"x87", Bit(l1.d, 0), State::kNone},
      {"cx8", Bit(l1.d, 8), State::kNone},
      {"cmov", Bit(l1.d, 15), State::kNone},
      {"mmx", Bit(l1.d, 23), State::kNone},
      {"fxsr", Bit(l1.d, 24), State::kNone},
      {"sse", Bit(l1.d, 25), State::kNone},
      {"sse2", Bit(l1.d, 26), State::kNone},
      {"sse3", Bit(l1.c, 0), State::kNone},
      {"pclmul", Bit(l1.c, 1), State::kNone},
      {"ssse3", Bit(l1.c, 9), State::kNone},
      {"fma", Bit(l1.c, 12), State::kAvx},
      {"cx16", Bit(l1.c, 13), State::kNone},
      {"sse4.1", Bit(l1.c, 19), State::kNone},
      {"sse4.2", Bit(l1.c, 20), State::kNone},
      {"crc32", Bit(l1.c, 20), State::kNone},
      {"movbe", Bit(l1.c, 22), State::kNone},
      {"popcnt", Bit(l1.c, 23), State::kNone},
      {"aes", Bit(l1.c, 25), State::kNone},
      {"xsave", Bit(l1.c, 27), State::kNone},
      {"avx", Bit(l1.c, 28), State::kAvx},
      {"f16c", Bit(l1.c, 29), State::kAvx},
      {"sahf", Bit(e1.c, 0), State::kNone},
      {"lzcnt", Bit(e1.c, 5), State::kNone},
      {"sse4a", Bit(e1.c, 6), State::kNone},
      {"prfchw", Bit(e1.c, 8), State::kNone},
      {"xop", Bit(e1.c, 11), State::kAvx},
      {"fma4", Bit(e1.c, 16), State::kAvx},
      {"tbm", Bit(e1.c, 21), State::kNone},
      {"bmi", Bit(l7.b, 3), State::kNone},
      {"avx2", Bit(l7.b, 5), State::kAvx},
      {"bmi2", Bit(l7.b, 8), State::kNone},
      {"avx512f", Bit(l7.b, 16), State::kAvx512},
      {"evex512", Bit(l7.b, 16), State::kAvx512},
      {"avx512dq", Bit(l7.b, 17), State::kAvx512},
      {"adx", Bit(l7.b, 19), State::kNone},
      {"avx512ifma", Bit(l7.b, 21), State::kAvx512},
      {"avx512cd", Bit(l7.b, 28), State::kAvx512},
      {"sha", Bit(l7.b, 29), State::kNone},
      {"avx512bw", Bit(l7.b, 30), State::kAvx512},
      {"avx512vl", Bit(l7.b, 31), State::kAvx512},
      {"avx512vbmi", Bit(l7.c, 1), State::kAvx512},
      {"avx512vbmi2", Bit(l7.c, 6), State::kAvx512},
      {"gfni", Bit(l7.c, 8), State::kNone},
      {"vaes", Bit(l7.c, 9), State::kAvx},
      {"vpclmulqdq", Bit(l7.c, 10), State::kAvx},
      {"avx512vnni", Bit(l7.c, 11), State::kAvx512},
      {"avx512bitalg", Bit(l7.c, 12), State::kAvx512},
      {"avx512vpopcntdq", Bit(l7.c, 14), State::kAvx512},
      {"avx512vp2intersect", Bit(l7.d, 8), State::kAvx512},
      {"amx-bf16", Bit(l7.d, 22), State::kAmx},
      {"avx512fp16", Bit(l7.d, 23), State::kAvx512},
      {"amx-tile", Bit(l7.d, 24), State::kAmx},
      {"amx-int8", Bit(l7.d, 25), State::kAmx},
      {"sha512", Bit(l71.a, 0), State::kAvx},
      {"sm3", Bit(l71.a, 1), State::kAvx},
      {"sm4", Bit(l71.a, 2), State::kAvx},
      {"avxvnni", Bit(l71.a, 4), State::kAvx},
      {"avx512bf16", Bit(l71.a, 5), State::kAvx512},
      {"amx-fp16", Bit(l71.a, 21), State::kAmx},
      {"avxifma", Bit(l71.a, 23), State::kAvx},
      {"avxvnniint8", Bit(l71.d, 4), State::kAvx},
      {"avxneconvert", Bit(l71.d, 5), State::kAvx},
      {"avxvnniint16", Bit(l71.d, 10), State::kAvx},
  };
  Features features;
  for (const auto& row : rows) {
    const bool saved = row.state == State::kNone || (row.state == State::kAvx && avx) ||
                       (row.state == State::kAvx512 && avx512) || (row.state == State::kAmx && amx);
    if (row.present && saved) features.insert(row.name);
  }
  // A hypervisor may hide a feature that others build on; what is left must be consistent.
  for (const std::string& f : Features(features)) {
    Features implied;
    EnableX86Feature(f, &implied);
    if (!std::includes(features.begin(), features.end(), implied.begin(), implied.end())) features.erase(f);
  }
  return features;
}

std::string HostCpu(const Features& features) {
  const Registers l0 = Cpuid(0), l1 = Cpuid(1);
  char vendor[13] = {};
  std::memcpy(vendor, &l0.b, 4);
  std::memcpy(vendor + 4, &l0.d, 4);
  std::memcpy(vendor + 8, &l0.c, 4);
  uint32_t family = (l1.a >> 8) & 0xf, model = (l1.a >> 4) & 0xf;
  if (family == 0xf) family += (l1.a >> 20) & 0xff;
  if (family == 6 || family >= 0xf) model |= ((l1.a >> 16) & 0xf) << 4;
  return X86CpuOf(vendor, family, model, features);
}

Target Detect() {
  const Features features = HostFeatures();
  Target target;
  target.attrs["mcpu"] = HostCpu(features);
  std::string mattr;
  for (const std::string& f : *X86CpuFeatures(target.attrs["mcpu"])) {
    if (features.count(f) == 0) mattr += (mattr.empty() ? "-" : ",-") + f;
  }
  // After the removals: what is there is there.
  for (const std::string& f : features) {
    if (IsX86Feature(f)) mattr += (mattr.empty() ? "+" : ",+") + f;
  }
  target.attrs["mattr"] = mattr;
  return *target.Completed();
}

}  // namespace

Target HostTarget() {
  static const Target* host = new Target(Detect());
  return *host;
}

#else

// Features of other architectures are not detected: the generic CPU of the architecture that this was built for.
Target HostTarget() {
  Target target;
#if defined(__aarch64__)
  target.attrs["mtriple"] = "aarch64-unknown-linux-gnu";
#elif defined(__riscv)
  target.attrs["mtriple"] = "riscv64-unknown-linux-gnu";
#else
#error "inlay runs on x86-64, aarch64 and riscv64"
#endif
  return *target.Completed();
}

#endif

}  // namespace inlay::target
