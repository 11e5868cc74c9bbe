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
  EXPECT_EQ(again->num_threads, 2);
  EXPECT_FALSE(again->link_params);
}

TEST(CompilationConfigTest, ErrorsNameTheField) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument, kUnimplemented = absl::StatusCode::kUnimplemented;
  ExpectError([](P* p) { (*p->add_targets()->mutable_attrs())["mcpu"] = "z80"; }, kInvalid,
              "config.targets[0]: target: unknown mcpu 'z80'");
  ExpectError([](P* p) { p->add_targets()->set_kind("onednn"); }, kUnimplemented, "the device target 'onednn'");
  ExpectError([](P* p) { p->add_targets(), p->add_targets(); }, kInvalid, "targets[1]: a second target of kind 'llvm'");
  ExpectError(
      [](P* p) {
        p->add_targets();
        (*p->mutable_target_host()->mutable_attrs())["mtriple"] = "aarch64-linux-gnu";
      },
      kInvalid, "config.target_host and config.targets[0] disagree: aarch64-unknown-linux-gnu against x86_64");
  ExpectError([](P* p) { p->mutable_target_host()->set_kind("c"); }, kInvalid, "'c' can't be a host");
  ExpectError([](P* p) { p->mutable_executor()->set_kind(proto::Executor::AOT); }, kUnimplemented,
              "config.executor: AOT");
  ExpectError([](P* p) { p->mutable_runtime()->set_kind(proto::Runtime::CRT); }, kUnimplemented, "config.runtime: CRT");
  ExpectError([](P* p) { p->mutable_search()->set_budget_s(-1); }, kInvalid, "budget_s is -1");
  ExpectError([](P* p) { p->mutable_search()->set_budget_s(std::nan("")); }, kInvalid, "budget_s");
  ExpectError([](P* p) { p->mutable_executor()->set_kind(static_cast<proto::Executor::Kind>(9)); }, kInvalid,
              "unknown kind 9");
  ExpectError([](P* p) { (*p->mutable_executor()->mutable_options())["x"] = "y"; }, kInvalid, "unknown option 'x'");
  ExpectError([](P* p) { p->mutable_passes()->set_opt_level(4); }, kInvalid, "opt_level is 4; it must be 0 to 3");
  ExpectError([](P* p) { p->set_num_threads(-1); }, kInvalid, "num_threads is -1");
}

}  // namespace
}  // namespace inlay::target
