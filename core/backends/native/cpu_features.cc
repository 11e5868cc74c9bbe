#include "core/backends/native/cpu_features.h"

#include "absl/strings/match.h"
#include "core/target/x86_cpus.h"

namespace inlay::native {

CpuFeatures FeaturesOf(const target::Target& target) {
  CpuFeatures cpu;
  const std::string triple = target.attr("mtriple", "x86_64");
  if (!absl::StartsWith(triple, "x86_64")) {
    // AArch64: NEON, with conversions of f16. RISC-V: vectors of 128 bits, which LLVM makes scalars of; f16 by
    // integers.
    cpu.core.registers = 32;
    cpu.fma = true;
    cpu.f16c = absl::StartsWith(triple, "aarch64");
    return cpu;
  }
  bool avx512 = target.HasFeature("avx512f") && target.HasFeature("avx512vl") && target.HasFeature("avx512bw") &&
                target.HasFeature("avx512dq");
  cpu.core.vector_bytes = avx512 ? 64 : target.HasFeature("avx2") ? 32 : 16;
  cpu.core.registers = avx512 ? 32 : 16;
  cpu.fma = target.HasFeature("fma");
  cpu.f16c = target.HasFeature("f16c");
  cpu.byte_dots = target.HasFeature(avx512 ? "avx512vnni" : "avxvnni");
  cpu.x86 = true;
  cpu.byte_tables = avx512 && target.HasFeature("avx512vbmi");
  cpu.matrix_tiles = avx512 && cpu.byte_dots && target.HasFeature("amx-int8");
  cpu.brain_dots = avx512 && target.HasFeature("avx512bf16");
  cpu.brain_tiles = cpu.brain_dots && target.HasFeature("amx-bf16");
  const target::X86Core core = target::X86CpuCore(target.attr("mcpu", "x86-64"));
  cpu.core.l1_bytes = core.l1_bytes;
  cpu.core.l2_bytes = core.l2_bytes;
  cpu.core.far_caches = core.far_caches;
  cpu.core.slow_starts = core.slow_starts;
  if (avx512) cpu.core.multiply_adds = core.wide_multiply_adds;
  return cpu;
}

}  // namespace inlay::native
