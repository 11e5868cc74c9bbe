// The compiled entry of a plan, by real objects in the JIT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/artifact/aot_entry.h"
#include "core/artifact/planner.h"
#include "core/artifact/static_library.h"
#include "core/artifact/testing/test_library.h"
#include "core/backend/backend.h"
#include "core/jit/loaded_module.h"

namespace inlay::aot {
namespace {

using ::testing::HasSubstr;
using namespace artifact::testing;  // NOLINT

absl::StatusOr<proto::StaticLibrary> CompileEntry(const std::string& canonical) {
  const ir::IRModule none;
  const backend::BackendCodegen* codegen = backend::CodegenRegistry::Global().Find("aot");
  return codegen->Codegen({none, *target::Target().Completed(), target::Target(), "", canonical});
}

// The model's plan with its entry, which is added to the model's libraries.
runtime::ExecutionPlan PlanWithEntry(TestModel* model, std::vector<proto::ParamRef>* params) {
  auto built = artifact::BuildPlan(model->builder.module(), model->manifests());
  EXPECT_TRUE(built.ok()) << built.status();
  for (const auto& p : built->params) {
    params->emplace_back();
    params->back().set_digest(std::string(p->digest.bytes()));
  }
  runtime::ExecutionPlan plan = std::move(built->plan);
  absl::StatusOr<proto::StaticLibrary> library = CompileEntry(artifact::CanonicalEntryPlan(plan));
  EXPECT_TRUE(library.ok()) << library.status();
  const proto::PrimitiveFunction& f = library->manifest().functions(0);
  plan.entry = static_cast<int32_t>(plan.functions.size());
  plan.functions.push_back({f.symbol(), f.inputs_size(), f.outputs_size(), false, f.workspace_bytes()});
  model->libraries.push_back(*std::move(library));
  return plan;
}

absl::StatusOr<std::unique_ptr<jit::LoadedModule>> Load(TestModel* model, int threads = 1) {
  std::vector<proto::ParamRef> params;
  const runtime::ExecutionPlan plan = PlanWithEntry(model, &params);
  auto get = [&](const Digest&) -> absl::StatusOr<jit::ParamBytes> {
    auto bytes = std::make_shared<std::string>(model->weight_bytes());
    return jit::ParamBytes{*bytes, bytes};
  };
  return jit::LoadedModule::Load(plan.ToJson(), model->library_pointers(), params, get, {threads});
}

struct Io {
  std::vector<float> x = std::vector<float>(kSize), y = x, x_again = x;
  absl::Status Run(const jit::LoadedModule& module) {
    const void* in[] = {x.data()};
    void* out[] = {y.data(), x_again.data()};
    return module.Run(in, out);
  }
};

TEST(AotEntry, RunsStatesConstantsWorkspacesAndCopies) {
  for (int threads : {1, 2}) {
    TestModel model;
    auto module = Load(&model, threads);
    ASSERT_TRUE(module.ok()) << module.status();
    Io io;
    for (int i = 0; i < kSize; ++i) io.x[i] = static_cast<float>(i);
    for (int run = 0; run < 3; ++run) {
      ASSERT_TRUE(io.Run(**module).ok());
      EXPECT_EQ(io.y, model.Expected(io.x));
      EXPECT_EQ(io.x_again, io.x);
    }
  }
}

TEST(AotEntry, ErrorsNameThePartition) {
  TestModel model(/*with_fail=*/true);
  auto module = Load(&model);
  ASSERT_TRUE(module.ok()) << module.status();
  Io io;
  EXPECT_TRUE(io.Run(**module).ok());
  io.x[1] = 1000;
  const absl::Status s = io.Run(**module);
  EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(s.message(), "partition 'checker' (t_fail_run): the second element is too big (code 3)");
  io.x[1] = 1;
  EXPECT_TRUE(io.Run(**module).ok());
}

TEST(AotEntry, ThreadsAtOnce) {
  TestModel model;
  auto module = Load(&model, 2);
  ASSERT_TRUE(module.ok()) << module.status();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Io io;
      io.x.assign(kSize, static_cast<float>(t));
      const std::vector<float> expected = model.Expected(io.x);
      for (int i = 0; i < 100; ++i) wrong += !io.Run(**module).ok() || io.y != expected;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(AotEntry, TheWorkspaceIsTheArena) {
  TestModel model;
  std::vector<proto::ParamRef> params;
  const runtime::ExecutionPlan plan = PlanWithEntry(&model, &params);
  EXPECT_GT(plan.arena_bytes, 0);
  EXPECT_EQ(plan.functions[plan.entry].workspace_bytes, plan.arena_bytes);
  EXPECT_TRUE(plan.Check().ok());
  auto again = runtime::ExecutionPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->entry, plan.entry);
}

TEST(AotEntry, NamesAndValuesAreNotInTheKey) {
  TestModel model;
  auto built = artifact::BuildPlan(model.builder.module(), model.manifests());
  ASSERT_TRUE(built.ok());
  const std::string canonical = artifact::CanonicalEntryPlan(built->plan);
  runtime::ExecutionPlan other = built->plan;
  other.inputs[0].name = "another";
  other.run_steps[0].name = "another";
  other.num_threads = 7;
  EXPECT_EQ(artifact::CanonicalEntryPlan(other), canonical);
  EXPECT_EQ(CompileEntry(canonical)->SerializeAsString(), CompileEntry(canonical)->SerializeAsString());
  other.arena_bytes += 64;
  EXPECT_NE(artifact::EntrySymbol(artifact::CanonicalEntryPlan(other)), artifact::EntrySymbol(canonical));
}

TEST(AotEntry, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(std::string(CompileEntry("{").status().message()), HasSubstr("execution plan"));
  TestModel model;
  std::vector<proto::ParamRef> params;
  runtime::ExecutionPlan plan = PlanWithEntry(&model, &params);
  const proto::StaticLibrary entry = model.libraries.back();
  model.libraries.erase(model.libraries.begin());
  const absl::Status s = artifact::CheckStaticLibraries(model.library_pointers());
  EXPECT_THAT(std::string(s.message()), HasSubstr("no library implements t_add, which it calls"));
  plan.arena_bytes += 64;
  EXPECT_THAT(plan.Check().message(), HasSubstr("was compiled for another plan"));
  plan.arena_bytes -= 64;
  runtime::ExecutionPlan recursive = plan;
  recursive.run_steps[0].function = plan.entry;
  EXPECT_FALSE(recursive.Check().ok());
  plan.entry = 99;
  EXPECT_THAT(plan.Check().message(), HasSubstr("the entry is missing"));
}

}  // namespace
}  // namespace inlay::aot
