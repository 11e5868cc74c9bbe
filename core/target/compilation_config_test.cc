#include "core/target/compilation_config.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace inlay::target {
namespace {

using ::testing::HasSubstr;

template <typename F>
absl::StatusOr<CompilationConfig> With(F change) {
  proto::CompilationConfig proto;
  change(&proto);
  return CompilationConfig::FromProto(proto);
}

template <typename F>
void ExpectError(F change, absl::StatusCode code, const std::string& text) {
  absl::StatusOr<CompilationConfig> config = With(change);
  EXPECT_EQ(config.status().code(), code) << text;
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(text));
}

using P = proto::CompilationConfig;

TEST(CompilationConfigTest, EmptyMeansDefaults) {
  absl::StatusOr<CompilationConfig> config = With([](P*) {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->target().attr("mcpu"), "x86-64-v3");
  EXPECT_EQ(config->target_host, config->target());
  EXPECT_EQ(config->opt_level, 3);
  EXPECT_EQ(config->search_mode, SearchMode::kAnalytic);
  EXPECT_TRUE(config->ShouldLinkParams());
  EXPECT_EQ(config->ToProto().SerializeAsString().size(),
            CompilationConfig::Default().ToProto().SerializeAsString().size());
}

TEST(CompilationConfigTest, RoundTrip) {
  absl::StatusOr<CompilationConfig> config = With([](P* p) {
    (*p->add_targets()->mutable_attrs())["mcpu"] = "znver4";
    p->add_targets()->set_kind("onednn");
    (*p->mutable_targets(1)->mutable_attrs())["layout"] = "any";
    p->set_link_params(false);
    p->mutable_search()->set_mode(proto::SearchOptions::NONE);
    p->mutable_search()->add_backends("native");
    p->mutable_passes()->set_opt_level(0);
    p->mutable_passes()->add_disabled_passes("simplify");
    p->mutable_passes()->set_mixed_precision("bf16");
    p->set_num_threads(2);
  });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->ShouldLinkParams());
  EXPECT_EQ(config->opt_level, 0);  // set to 0 is not absent
  EXPECT_EQ(config->CodegenTarget("onednn").attr("layout"), "any");
  EXPECT_EQ(config->CodegenTarget("cudnn").ToString(), "cudnn");
  absl::StatusOr<CompilationConfig> again = CompilationConfig::FromProto(config->ToProto());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->targets, config->targets);
  EXPECT_EQ(again->search_mode, SearchMode::kNone);
  EXPECT_EQ(again->backends, config->backends);
  EXPECT_EQ(again->disabled_passes, config->disabled_passes);
  EXPECT_EQ(again->mixed_precision, "bf16");
  EXPECT_EQ(again->num_threads, 2);
  EXPECT_FALSE(again->link_params);
}

TEST(CompilationConfigTest, ErrorsNameTheField) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument, kUnimplemented = absl::StatusCode::kUnimplemented;
  ExpectError([](P* p) { (*p->add_targets()->mutable_attrs())["mcpu"] = "z80"; }, kInvalid,
              "config.targets[0]: target: unknown mcpu 'z80'");
  ExpectError([](P* p) { p->add_targets()->set_kind("onednn"); }, kInvalid,
              "config.targets[0]: 'onednn' is no device; a device (llvm, c, cuda) comes first");
  ExpectError([](P* p) { p->add_targets(), p->add_targets()->set_kind("c"); }, kInvalid,
              "config.targets[1]: a second device ('c' after 'llvm'); a configuration has one");
  ExpectError([](P* p) { p->mutable_target_host()->set_kind("onednn"); }, kInvalid, "'onednn' can't be a host");
  ExpectError([](P* p) { p->add_targets()->set_kind("cuda"); }, kUnimplemented, "kind 'cuda' is not there yet");
  ExpectError([](P* p) { (*p->add_targets()->mutable_attrs())["mtriple"] = "riscv64-linux-gnu"; }, kUnimplemented,
              "riscv64 with the runtime CPP is not there yet");
  ExpectError([](P* p) { p->mutable_search()->set_budget_s(-1); }, kInvalid, "budget_s is -1");
  ExpectError([](P* p) { p->mutable_search()->set_budget_s(std::nan("")); }, kInvalid, "budget_s");
  ExpectError([](P* p) { p->mutable_executor()->set_kind(static_cast<proto::Executor::Kind>(9)); }, kInvalid,
              "unknown kind 9");
  ExpectError([](P* p) { p->mutable_executor()->set_workspace_byte_alignment(24); }, kInvalid,
              "workspace_byte_alignment is 24; it must be a power of two");
  ExpectError([](P* p) { p->mutable_passes()->set_opt_level(4); }, kInvalid, "opt_level is 4; it must be 0 to 3");
  ExpectError([](P* p) { p->mutable_passes()->set_mixed_precision("fp8"); }, kInvalid,
              "mixed_precision is 'fp8'; it must be 'bf16', or empty");
  ExpectError([](P* p) { p->set_num_threads(-1); }, kInvalid, "num_threads is -1");
}

// Each of these is two fields that are fine alone; the message names both.
TEST(CompilationConfigTest, FieldsThatDisagree) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  auto crt = [](P* p) {
    p->mutable_runtime()->set_kind(proto::Runtime::CRT);
    p->mutable_executor()->set_kind(proto::Executor::AOT);
  };
  ExpectError(
      [](P* p) {
        (*p->add_targets()->mutable_attrs())["mtriple"] = "x86_64-linux-gnu";
        (*p->mutable_target_host()->mutable_attrs())["mtriple"] = "aarch64-linux-gnu";
      },
      kInvalid, "config.target_host and config.targets[0] disagree: aarch64-unknown-linux-gnu against x86_64");
  ExpectError([](P* p) { p->mutable_target_host()->set_kind("c"); }, kInvalid,
              "config.target_host and config.targets[0] disagree: kind 'c' against 'llvm'");
  ExpectError(
      [](P* p) {
        p->add_targets();
        for (int i = 0; i < 2; ++i) p->add_targets()->set_kind("native");
      },
      kInvalid, "config.targets[1] and config.targets[2] disagree: they are the same; two variants");
  ExpectError([](P* p) { p->mutable_executor()->set_interface_api(proto::Executor::C); }, kInvalid,
              "config.executor.interface_api and config.executor.kind disagree");
  ExpectError([](P* p) { p->mutable_executor()->set_unpacked_api(true); }, kInvalid,
              "config.executor.unpacked_api and config.executor.kind disagree");
  ExpectError(
      [](P* p) {
        p->mutable_executor()->set_kind(proto::Executor::AOT);
        p->mutable_executor()->set_unpacked_api(true);
      },
      kInvalid, "config.executor.unpacked_api and config.runtime.kind disagree");
  ExpectError([](P* p) { p->mutable_executor()->set_workspace_byte_alignment(16); }, kInvalid,
              "config.executor.workspace_byte_alignment and config.runtime.kind disagree");
  ExpectError([](P* p) { p->mutable_runtime()->set_system_lib(true); }, kInvalid,
              "config.runtime.system_lib and config.runtime.kind disagree");
  ExpectError([](P* p) { p->mutable_runtime()->set_kind(proto::Runtime::CRT); }, kInvalid,
              "config.executor.kind and config.runtime.kind disagree: GRAPH reads its plan");
  ExpectError([&](P* p) { crt(p), p->mutable_executor()->set_kind(proto::Executor::VM); }, kInvalid,
              "config.executor.kind and config.runtime.kind disagree: the VM needs a heap");
  ExpectError([&](P* p) { crt(p), p->set_link_params(false); }, kInvalid,
              "config.link_params and config.runtime.kind disagree");
  ExpectError([&](P* p) { crt(p), p->set_num_threads(2); }, kInvalid,
              "config.num_threads and config.runtime.kind disagree");
  ExpectError([&](P* p) { crt(p), p->mutable_search()->set_mode(proto::SearchOptions::MEASURED); }, kInvalid,
              "config.search.mode and config.runtime.kind disagree");
  ExpectError([&](P* p) { crt(p), p->add_targets()->set_kind("cuda"); }, kInvalid,
              "config.targets[0] and config.runtime.kind disagree: CRT drives no GPU");
  ExpectError([](P* p) { p->add_targets()->set_kind("c"); }, kInvalid,
              "config.targets[0] and config.runtime.kind disagree: kind 'c' yields C sources");
}

TEST(CompilationConfigTest, NotThereYet) {
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  ExpectError(
      [](P* p) {
        p->mutable_runtime()->set_kind(proto::Runtime::CRT);
        p->mutable_executor()->set_kind(proto::Executor::AOT);
      },
      kUnimplemented, "config.targets[0]: kind 'llvm' for x86_64 with the runtime CRT");
}

TEST(CompilationConfigTest, VariantsOfABackend) {
  absl::StatusOr<CompilationConfig> config = With([](P* p) {
    p->add_targets();
    for (const char* value : {"1", "0"}) {
      proto::Target* target = p->add_targets();
      target->set_kind("native");
      (*target->mutable_attrs())["winograd"] = value;
    }
  });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->NumVariants("native"), 2);
  EXPECT_EQ(config->NumVariants("onednn"), 1);
  EXPECT_EQ(config->CodegenTarget("native").attr("winograd"), "1");
  EXPECT_EQ(config->CodegenTarget("native#2").attr("winograd"), "0");
  EXPECT_EQ(config->CodegenTarget("native#3").ToString(), "native");
  EXPECT_EQ(BackendOfVariant(VariantName("native", 2)), "native");
  EXPECT_EQ(VariantName("native", 1), "native");
}

}  // namespace
}  // namespace inlay::target
