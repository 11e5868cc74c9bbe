#include "core/target/target.h"

#include "core/target/target_kinds.h"
#include "core/target/x86_cpus.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::target {
namespace {

using ::testing::HasSubstr;

Target Parse(const std::string& text) {
  absl::StatusOr<Target> target = Target::Parse(text);
  EXPECT_TRUE(target.ok()) << target.status();
  return target.ok() ? *target : Target();
}

Target Complete(const std::string& text) {
  absl::StatusOr<Target> target = Parse(text).Completed();
  EXPECT_TRUE(target.ok()) << target.status();
  return target.ok() ? *target : Target();
}

std::string ParseError(const std::string& text) {
  absl::StatusOr<Target> target = Target::Parse(text);
  if (target.ok()) target = target->Completed();
  EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(target.status().message());
}

TEST(TargetTest, ParsesAndPrints) {
  const Target t = Parse("llvm -mcpu=znver4 -mattr=+avx512f,-avx512bf16 -num-cores=2");
  EXPECT_EQ(t.kind, "llvm");
  EXPECT_EQ(t.attr("mcpu"), "znver4");
  EXPECT_EQ(t.attr("absent", "x"), "x");
  EXPECT_EQ(t.ToString(), "llvm -mattr=+avx512f,-avx512bf16 -mcpu=znver4 -num-cores=2");
  EXPECT_EQ(Parse(t.ToString()), t);
  EXPECT_EQ(Parse(R"({"kind": "llvm", "mcpu": "znver4", "mattr": ["+avx512f", "-avx512bf16"], "num-cores": 2})"), t);
  EXPECT_EQ(Parse("onednn -layout=any").attr("layout"), "any");
}

TEST(TargetTest, ErrorsNameTheWord) {
  EXPECT_THAT(ParseError(""), HasSubstr("the text is empty"));
  EXPECT_THAT(ParseError("llvm mcpu=znver4"), HasSubstr("can't read 'mcpu=znver4'; write -name=value"));
  EXPECT_THAT(ParseError("llvm -march=x"), HasSubstr("'llvm' has no attribute 'march'; it has mattr, mcpu, mtriple"));
  EXPECT_THAT(ParseError("{broken"), HasSubstr("no JSON object"));
  EXPECT_THAT(ParseError(R"({"kind": "llvm", "mcpu": 1.5})"), HasSubstr("'mcpu' must be a string or an integer"));
  EXPECT_THAT(ParseError("llvm -num-cores=0"), HasSubstr("num-cores=0 must be a number from 1"));
  EXPECT_THAT(ParseError("llvm -mcpu=znver9"), HasSubstr("unknown mcpu 'znver9'; known: x86-64 "));
  EXPECT_THAT(ParseError("llvm -mcpu=native"), HasSubstr("must be resolved by the client"));
  EXPECT_THAT(ParseError("llvm -mattr=avx2"), HasSubstr("mattr holds 'avx2'; write +feature or -feature"));
  EXPECT_THAT(ParseError("llvm -mattr=+avx3"), HasSubstr("unknown x86 feature 'avx3'"));
  EXPECT_THAT(ParseError("llvm -mattr=-sse2"), HasSubstr("sse2 can't be disabled"));
  EXPECT_THAT(ParseError("llvm -mtriple=sparc-linux"), HasSubstr("known: x86_64, aarch64, riscv64"));
  EXPECT_THAT(ParseError("llvm -mtriple=x86_64-apple-darwin"), HasSubstr("Linux is"));
  EXPECT_THAT(ParseError("ll vm"), HasSubstr("can't read 'vm'"));
}

TEST(TargetTest, CompletionFollowsFromTheCpu) {
  const Target v3 = Complete("llvm");
  EXPECT_EQ(v3.attr("mtriple"), "x86_64-unknown-linux-gnu");
  EXPECT_EQ(v3.attr("mcpu"), "x86-64-v3");
  EXPECT_TRUE(v3.HasFeature("avx2"));
  EXPECT_TRUE(v3.HasFeature("fma"));
  EXPECT_TRUE(v3.HasFeature("sse2"));  // implied
  EXPECT_FALSE(v3.HasFeature("avx512f"));
  const Target zen4 = Complete("llvm -mcpu=znver4");
  for (const char* f : {"avx512f", "avx512bf16", "avx512vnni", "avx512vl", "vaes"})
    EXPECT_TRUE(zen4.HasFeature(f)) << f;
  EXPECT_FALSE(zen4.HasFeature("amx-tile"));
  EXPECT_TRUE(Complete("llvm -mcpu=sapphirerapids").HasFeature("avx512fp16"));
  EXPECT_FALSE(Complete("llvm -mcpu=alderlake").HasFeature("avx512f"));
  EXPECT_TRUE(Complete("llvm -mcpu=alderlake").HasFeature("avxvnni"));
  EXPECT_FALSE(Complete("llvm -mcpu=x86-64-v2").HasFeature("avx"));
}

TEST(TargetTest, AttributesAddAndRemoveWithWhatFollows) {
  const Target added = Complete("llvm -mattr=+avx512vnni");
  EXPECT_TRUE(added.HasFeature("avx512f"));
  EXPECT_TRUE(added.HasFeature("evex512"));
  const Target removed = Complete("llvm -mcpu=znver4 -mattr=-avx512f");
  EXPECT_FALSE(removed.HasFeature("avx512vnni"));
  EXPECT_TRUE(removed.HasFeature("avx2"));
  // LLVM adds what the CPU has, so what is gone must be said.
  EXPECT_THAT(removed.attr("mattr"), HasSubstr("-avx512f"));
  EXPECT_EQ(Complete("llvm -mattr=+avx512f,-avx512f"), Complete("llvm"));
  EXPECT_EQ(Complete("llvm -mattr=+sgx"), Complete("llvm"));  // no generated code uses it
}

TEST(TargetTest, CompletionIsIdempotentAndCanonical) {
  for (const std::string& cpu : X86CpuNames()) {
    const Target once = Complete("llvm -mcpu=" + cpu + " -mattr=-avx512f,-fma");
    EXPECT_EQ(*once.Completed(), once) << cpu;
  }
  EXPECT_EQ(Complete("llvm -mtriple=x86_64-linux-gnu"), Complete("llvm -mtriple=x86_64-pc-linux-gnu"));
  EXPECT_EQ(*HostTarget().Completed(), HostTarget());
}

TEST(TargetTest, OtherArchitecturesAreTakenAsGiven) {
  const Target arm = Complete("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=+sve,+bf16,-sve");
  EXPECT_EQ(arm.attr("mtriple"), "aarch64-unknown-linux-gnu");
  EXPECT_EQ(arm.attr("mattr"), "+bf16,-sve");
  EXPECT_TRUE(arm.HasFeature("bf16"));
  EXPECT_FALSE(arm.HasFeature("sve"));
  EXPECT_EQ(Complete("llvm -mtriple=riscv64").attr("mcpu"), "generic-rv64");
}

#if defined(__x86_64__)
// The compiler's run-time library asks the same questions of the machine.
TEST(TargetTest, HostAgreesWithTheCompilersRuntime) {
  const Target host = HostTarget();
  EXPECT_EQ(host.HasFeature("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(host.HasFeature("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(host.HasFeature("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(host.HasFeature("avx512bw"), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(host.HasFeature("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(host.HasFeature("avx512bf16"), __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_EQ(host.HasFeature("popcnt"), __builtin_cpu_supports("popcnt") != 0);
}
#endif

TEST(TargetTest, TextAndJsonReadBackToTheSame) {
  Target target;
  target.kind = "csource";
  target.attrs = {{"cflags", "-O2 -ffast-math"}, {"kernels", R"([{"source": "it's \"C\" \\n"}])"}, {"cc", "gcc"}};
  EXPECT_EQ(Parse(target.ToString()), target) << target.ToString();
  EXPECT_EQ(Parse(target.ToJson()), target) << target.ToJson();
  EXPECT_EQ(Parse(R"(csource "-cflags=-O2 -g" -cc=g\cc)").attr("cflags"), "-O2 -g");
  EXPECT_THAT(ParseError("csource '-cflags=-O2"), HasSubstr("a quotation mark is not closed"));
}

TEST(TargetTest, AttributesAreOfTheirTypes) {
  const std::vector<AttrSpec> specs = {{"fast", AttrSpec::Type::kBool, "1", "whether"},
                                       {"isa", AttrSpec::Type::kChoice, "avx2", "which", {"avx2", "avx512"}},
                                       {"n", AttrSpec::Type::kInt, "4", "how many"}};
  auto error = [&](const std::map<std::string, std::string>& attrs) {
    return std::string(CheckAttrs(attrs, specs, "the codegen target x").message());
  };
  EXPECT_EQ(error({{"fast", "0"}, {"isa", "avx512"}, {"n", "-3"}}), "");
  EXPECT_EQ(error({{"slow", "0"}}), "the codegen target x has no attribute 'slow'; it has fast, isa, n");
  EXPECT_EQ(error({{"fast", "yes"}}), "the codegen target x: fast=yes must be 0 or 1");
  EXPECT_EQ(error({{"isa", "sse"}}), "the codegen target x: isa=sse must be one of avx2, avx512");
  EXPECT_EQ(error({{"n", "many"}}), "the codegen target x: n=many must be a number");
}

TEST(X86CpusTest, Cores) {
  using Kib = std::pair<int64_t, int64_t>;
  const auto kib = [](absl::string_view cpu) {
    const X86Core core = X86CpuCore(cpu);
    return Kib(core.l1_bytes >> 10, core.l2_bytes >> 10);
  };
  EXPECT_EQ(kib("haswell"), Kib(32, 256));
  EXPECT_EQ(kib("znver3"), Kib(32, 512));
  EXPECT_EQ(kib("znver5"), Kib(48, 1024));
  EXPECT_EQ(kib("sapphirerapids"), Kib(48, 2048));
  EXPECT_EQ(kib("x86-64-v3"), Kib(32, 512));
  EXPECT_EQ(kib("no such"), Kib(32, 512));
  for (const std::string& cpu : X86CpuNames()) {
    EXPECT_GE(kib(cpu), Kib(16, 256)) << cpu;
    EXPECT_LE(kib(cpu), Kib(48, 2048)) << cpu;
  }
  EXPECT_EQ(X86CpuCore("znver4").wide_multiply_adds, 1);
  EXPECT_EQ(X86CpuCore("znver5").wide_multiply_adds, 2);
  EXPECT_EQ(X86CpuCore("x86-64-v4").wide_multiply_adds, 2);
  EXPECT_TRUE(X86CpuCore("znver3").slow_starts);
  EXPECT_FALSE(X86CpuCore("x86-64-v3").slow_starts);
  EXPECT_TRUE(X86CpuCore("emeraldrapids").far_caches);
  EXPECT_FALSE(X86CpuCore("znver5").far_caches);
}

TEST(X86CpusTest, AModelThatTheFeaturesBelieIsNotTaken) {
  const auto cpu_of = [](absl::string_view vendor, uint32_t family, uint32_t model, absl::string_view cpu,
                         std::vector<std::string> more = {}) {
    Features features = *X86CpuFeatures(cpu);
    features.insert(more.begin(), more.end());
    return X86CpuOf(vendor, family, model, features);
  };
  const char *intel = "GenuineIntel", *amd = "AuthenticAMD";
  EXPECT_EQ(cpu_of(intel, 6, 0xa7, "rocketlake"), "rocketlake");
  EXPECT_EQ(cpu_of(intel, 6, 0xcf, "emeraldrapids"), "emeraldrapids");
  EXPECT_EQ(cpu_of(intel, 6, 0xa7, "sapphirerapids"), "sapphirerapids");  // seen: a cloud's Granite Rapids
  EXPECT_EQ(cpu_of(intel, 6, 0xcf, "haswell"), "emeraldrapids");          // features are hidden, the core is the same
  EXPECT_EQ(cpu_of(intel, 6, 0x97, "alderlake"), "alderlake");
  EXPECT_EQ(cpu_of(intel, 19, 1, "graniterapids", {"avxifma"}), "graniterapids");  // of no table
  EXPECT_EQ(cpu_of(intel, 19, 1, "skylake"), "x86-64-v3");
  EXPECT_EQ(cpu_of(amd, 0x19, 0x61, "znver4"), "znver4");
  EXPECT_EQ(cpu_of(amd, 0x17, 0x31, "znver4"), "znver4");
  EXPECT_EQ(cpu_of(amd, 0x1b, 0, "znver5"), "znver5");
  EXPECT_EQ(cpu_of("HygonGenuine", 0x18, 0, "x86-64-v3"), "x86-64-v3");
  EXPECT_EQ(cpu_of("", 0, 0, "x86-64"), "x86-64");
}

}  // namespace
}  // namespace inlay::target
