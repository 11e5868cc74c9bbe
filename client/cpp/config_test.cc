// Targets and configurations without a server.
#include "inlay/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inlay {
namespace {

using testing::HasSubstr;

TEST(TargetTest, Forms) {
  const Target target("llvm -mcpu=x86-64-v3 -num-cores=2");
  EXPECT_TRUE(target.status().ok());
  EXPECT_EQ(target.attr("num-cores"), "2");
  EXPECT_EQ(Target(target.ToString()), target);
  EXPECT_EQ(Target(target.ToJson()), target);
  EXPECT_EQ(Target("llvm", {{"mcpu", "x86-64-v3"}, {"num-cores", "2"}}), target);
  const Target quoted("csource", {{"cflags", "-O3 -ffast-math"}});
  EXPECT_EQ(Target(quoted.ToString()), quoted);
}

TEST(TargetTest, WhatCanNotBeReadIsKept) {
  for (const char* text : {"", "-mcpu=x", "llvm mcpu", "{", "llvm -march=haswell", "llvm -num-cores=0"}) {
    const Target target(text);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(CompilationConfig::FromTarget(target).Check(), target.status()) << text;
  }
  EXPECT_THAT(Target("llvm -march=haswell").status().message(), HasSubstr("has no attribute 'march'; it has mattr"));
}

TEST(TargetTest, Scopes) {
  EXPECT_EQ(Target::Current(), std::nullopt);
  {
    const TargetScope outer("llvm -mcpu=x86-64-v2");
    {
      const TargetScope inner("llvm");
      EXPECT_EQ(Target::Current(), Target("llvm"));
    }
    EXPECT_EQ(Target::Current(), Target("llvm -mcpu=x86-64-v2"));
  }
  EXPECT_EQ(Target::Current(), std::nullopt);
}

TEST(ConfigTest, GoesOverTheWire) {
  CompilationConfig config;
  config.targets = {"c", "native -winograd=0"};
  config.target_host = "c";
  config.executor = Executor("aot", {{"interface-api", "c"}, {"unpacked-api", true}, {"workspace-byte-alignment", 16}});
  config.runtime = Runtime("crt", {{"system-lib", true}});
  config.link_params = false;
  config.search = "measured";
  config.search_budget_s = 1.5;
  config.dim_hints = {{"batch", 8}, {"seq", 384}};
  config.replan = true;
  config.backends = {"native"};
  config.opt_level = 0;
  config.disabled_passes = {"fold_pads"};
  config.mixed_precision = "bf16";
  config.num_threads = 3;
  const absl::StatusOr<std::string> bytes = config.ToBytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*CompilationConfig::FromBytes(*bytes), config);
  EXPECT_EQ(CompilationConfig::FromBytes("\xff\xff").status().code(), absl::StatusCode::kInvalidArgument);
  CompilationConfig plain;
  plain.search = "analytic";
  EXPECT_EQ(*CompilationConfig::FromBytes(*plain.ToBytes()), plain);
}

std::string Refusal(const CompilationConfig& config) { return std::string(config.Check().message()); }

TEST(ConfigTest, OptionsThatThereAreNot) {
  CompilationConfig config;
  config.executor = Executor("graph", {{"unpacked-api", true}});
  EXPECT_THAT(Refusal(config), HasSubstr("executor graph has no attribute 'unpacked-api'"));
  config.executor = Executor("aot", {{"interface-api", "java"}});
  EXPECT_THAT(Refusal(config), HasSubstr("executor aot: interface-api=java must be one of packed, c"));
  config.executor = Executor("aot", {{"workspace-byte-alignment", "many"}});
  EXPECT_THAT(Refusal(config), HasSubstr("workspace-byte-alignment=many must be a number"));
  config.executor = "jet";
  EXPECT_THAT(Refusal(config), HasSubstr("executor is 'jet'; there are graph, aot, vm"));
  config.executor = Executor();
  config.runtime = Runtime("crt", {{"heap", 1}});
  EXPECT_THAT(Refusal(config), HasSubstr("runtime crt has no attribute 'heap'; it has system-lib"));
  config.runtime = Runtime();
  config.search = "luck";
  EXPECT_THAT(Refusal(config), HasSubstr("search is 'luck'; there are none, analytic, measured"));
  config.search = "";
  config.pinned = "\xff\xff";
  EXPECT_THAT(Refusal(config), HasSubstr("pinned is no cover"));
}

}  // namespace
}  // namespace inlay
