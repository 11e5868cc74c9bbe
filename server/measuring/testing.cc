#include "server/measuring/testing.h"

#include "absl/strings/str_cat.h"
#include "core/artifact/planner.h"
#include "core/artifact/testing/test_library.h"

namespace inlay::server {

proto::MeasureAction::Subject SubjectOf(const std::string& name, const std::string& body,
                                        const std::string& weight_name, const std::string& before) {
  namespace testing = artifact::testing;
  const testing::Signature signature =
      testing::Signature("t_f").In(testing::Vector()).In(testing::Vector()).Out(testing::Vector()).Constant({1});
  testing::ModuleBuilder builder;
  builder.Implement(signature);
  const ir::VarPtr x = builder.Input("x", testing::Vector());
  builder.Return({builder.Call("t_f", {x, ir::MakeWeight(testing::Vector(), Digest::Of("w"), weight_name)}, "f")},
                 {"y"});

  proto::MeasureAction::Subject subject;
  subject.set_name(name);
  *subject.add_libraries() = testing::MakeLibrary(absl::StrCat(R"(
#include "core/runtime/kernel_abi.h"
void abort(void);
)",
                                                               before, R"(
int32_t t_f_run(const InlayCallContext* ctx, void* const* args) {
  const float* x = args[0];
  const float* w = args[1];
  float* y = args[2];
  (void)x, (void)w, (void)y;
  )",
                                                               body, "\nreturn 0;\n}\n"),
                                                  {signature});
  const auto plan = artifact::BuildPlan(builder.module(), {subject.libraries(0).manifest()});
  subject.set_plan_json(plan.value().plan.ToJson());
  return subject;
}

proto::MeasureAction ActionOf(const std::vector<std::string>& bodies) {
  proto::MeasureAction action;
  for (const std::string& body : bodies) {
    *action.add_subjects() = SubjectOf(absl::StrCat("subject ", action.subjects_size()), body);
  }
  action.set_rtol(1e-4);
  action.set_atol(1e-5);
  action.set_num_threads(1);
  action.set_seed(7);
  action.set_min_rounds(5);
  action.set_max_rounds(10);
  action.set_budget_ms(1);
  return action;
}

}  // namespace inlay::server
