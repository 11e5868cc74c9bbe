// Measurements in this process: what is timed, what is checked.
#include "server/measuring/measure_action.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/measuring/testing.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action) {
  return RunMeasureAction(action, nullptr);
}
constexpr int kDataLoss = static_cast<int>(absl::StatusCode::kDataLoss);

TEST(MeasureAction, TimesEverySubject) {
  const std::string slow = absl::StrCat("for (volatile int k = 0; k < 100000; k = k + 1) {}", kMultiply);
  auto result = Measure(ActionOf({kMultiply, slow}));
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& timing : result->timings()) {
    EXPECT_EQ(timing.code(), 0) << timing.message();
    EXPECT_GT(timing.min_us(), 0);
    EXPECT_GE(timing.median_us(), timing.min_us());
    EXPECT_GE(timing.spread_us(), 0);
    EXPECT_GE(timing.rounds(), 5);
    EXPECT_EQ(timing.max_error(), 0);
  }
  EXPECT_GT(result->timings(1).min_us(), 10 * result->timings(0).min_us());
}

TEST(MeasureAction, RoundsAndBudget) {
  const std::string slow = absl::StrCat("for (volatile int k = 0; k < 100000; k = k + 1) {}", kMultiply);
  proto::MeasureAction action = ActionOf({kMultiply, slow});
  action.set_budget_ms(60000);
  auto result = Measure(action).value();
  EXPECT_EQ(result.timings(0).rounds(), 10) << "max_rounds";
  EXPECT_EQ(result.timings(1).rounds(), 5) << "it has lost after min_rounds";
  action.set_reference(-1);
  result = Measure(action).value();
  EXPECT_EQ(result.timings(1).rounds(), 10) << "without a reference they need not be rivals";
  action.set_budget_ms(0);
  EXPECT_EQ(Measure(action)->timings(0).rounds(), 5);
  action.set_min_rounds(0);
  EXPECT_EQ(Measure(action)->timings(0).rounds(), 3);
}

TEST(MeasureAction, AWrongResultIsExcludedAndSaysWhere) {
  const std::string wrong = absl::StrCat(kMultiply, "y[17] = 5; y[18] = 6;");
  auto result = Measure(ActionOf({kMultiply, wrong, "for (int i = 1; i < 1000; ++i) y[i] = x[i] * w[i];",
                                  absl::StrCat(kMultiply, "y[3] *= 1.00001f;")}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(0).code(), 0);
  EXPECT_EQ(result->timings(1).code(), kDataLoss);
  EXPECT_THAT(result->timings(1).message(),
              HasSubstr("wrong result: output 0 ('y'): element 17 of f32[1000] is 5 instead of "));
  EXPECT_THAT(result->timings(1).message(), HasSubstr("2 of 1000 are wrong"));
  EXPECT_EQ(result->timings(1).rounds(), 0);
  EXPECT_GT(result->timings(1).max_error(), 1);
  EXPECT_THAT(result->timings(2).message(), HasSubstr("element 0 of")) << "it writes nothing there";
  EXPECT_EQ(result->timings(3).code(), 0) << "within the tolerance: " << result->timings(3).message();
  EXPECT_GT(result->timings(3).max_error(), 0);
}

TEST(MeasureAction, ASubjectMayHaveMoreToleranceThanOthers) {
  const std::string rough = absl::StrCat(kMultiply, "y[3] *= 1.01f;");
  proto::MeasureAction action = ActionOf({kMultiply, rough, rough, absl::StrCat(kMultiply, "y[3] *= 1.1f;")});
  for (int i : {2, 3}) action.mutable_subjects(i)->set_rtol(0.02);
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(1).code(), kDataLoss);
  EXPECT_EQ(result->timings(2).code(), 0) << result->timings(2).message();
  EXPECT_EQ(result->timings(3).code(), kDataLoss) << "no more than promised";
}

TEST(MeasureAction, AResultThatIsWrongLaterIsSeenToo) {
  auto result =
      Measure(ActionOf({kMultiply, absl::StrCat("static int runs;", kMultiply, "if (++runs > 3) y[0] = 9;")}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(1).code(), kDataLoss);
}

TEST(MeasureAction, AResultThatIsNoLongerWrittenIsSeenToo) {
  auto result = Measure(ActionOf({kMultiply, absl::StrCat("static int runs; if (++runs < 2) {", kMultiply, "}")}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(1).code(), kDataLoss);
}

TEST(MeasureAction, ALongRunIsNotRepeatedInVain) {
  // Checked once, timed three times. Twenty million roots, one after another, take more than 50 ms.
  const std::string slow = absl::StrCat(
      "static int runs; if (++runs > 4) return ctx->set_error(ctx->owner, INLAY_E_LIBRARY, \"again\"), 13;",
      "volatile double sink = 1; double v = sink; for (int k = 0; k < 20000000; ++k) v = __builtin_sqrt(v + 1);"
      "sink = v;",
      kMultiply);
  proto::MeasureAction action = ActionOf({});
  *action.add_subjects() = SubjectOf("slow", slow);
  action.set_min_rounds(3);
  action.set_budget_ms(1);
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(0).rounds(), 3);
}

TEST(MeasureAction, ValuesAreTheSameInEverySubjectAndEveryRun) {
  // The function reports what it sees as an error, which is a message; subjects see the same whatever came before.
  const std::string tell =
      "unsigned h = 0; const unsigned* a = (const unsigned*)x; const unsigned* b = (const unsigned*)w;"
      "for (int i = 0; i < 1000; ++i) h = h * 31 + a[i] * 7 + b[i];"
      "static char text[9]; for (int i = 0; i < 8; ++i) text[i] = 'a' + ((h >> (4 * i)) & 15);"
      "ctx->set_error(ctx->owner, INLAY_E_LIBRARY, text); return INLAY_E_LIBRARY;";
  auto seen = [&](uint64_t seed, const std::string& weight) {
    proto::MeasureAction action = ActionOf({});
    *action.add_subjects() = SubjectOf("reference", kMultiply, weight);
    *action.add_subjects() = SubjectOf("teller", tell, weight);
    action.set_seed(seed);
    auto result = Measure(action);
    EXPECT_TRUE(result.ok()) << result.status();
    return result->timings(1).message();
  };
  const std::string first = seen(1, "a");
  EXPECT_THAT(first, HasSubstr("partition 'f' (t_f_run)"));
  EXPECT_EQ(seen(1, "a"), first);
  EXPECT_NE(seen(2, "a"), first);
  EXPECT_NE(seen(1, "b"), first) << "another weight";
}

TEST(MeasureAction, AWeightGoesByItsDigestWhereItIsGiven) {
  proto::MeasureAction action = ActionOf({});
  *action.add_subjects() = SubjectOf("reference", kMultiply, "one_name");
  *action.add_subjects() = SubjectOf("another", kMultiply, "another_name");
  EXPECT_EQ(Measure(action)->timings(1).code(), kDataLoss) << "they have different weights";
  for (auto& subject : *action.mutable_subjects()) subject.add_params()->set_digest("the same");
  EXPECT_EQ(Measure(action)->timings(1).code(), 0);
}

TEST(MeasureAction, WhatCannotBeLoadedOrRunIsExcluded) {
  proto::MeasureAction action = ActionOf({kMultiply, kMultiply, kMultiply, kMultiply});
  action.mutable_subjects(1)->set_plan_json("{");
  action.mutable_subjects(2)->clear_libraries();
  action.mutable_subjects(3)->mutable_libraries(0)->mutable_objects(0)->set_data("no object");
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->timings(0).code(), 0);
  for (int i = 1; i < 4; ++i) {
    EXPECT_NE(result->timings(i).code(), 0);
    EXPECT_NE(result->timings(i).message(), "");
  }
  action.set_reference(2);
  EXPECT_EQ(Measure(action).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Measure(action).status().message(), HasSubstr("reference subject 'subject 2' cannot be measured"));
}

TEST(MeasureAction, SenselessActions) {
  EXPECT_EQ(Measure({}).status().message(), "nothing to measure");
  proto::MeasureAction action = ActionOf({kMultiply});
  action.set_reference(1);
  EXPECT_EQ(Measure(action).status().message(), "reference 1 of 1 subjects");
  action.set_reference(0);
  action.set_rtol(-1);
  EXPECT_EQ(Measure(action).status().code(), absl::StatusCode::kInvalidArgument);
  action = ActionOf({kMultiply, kMultiply});
  action.mutable_subjects(1)->mutable_libraries(0)->mutable_manifest()->set_has_client_code(true);
  EXPECT_EQ(Measure(action).status().message(), "'subject 1' holds C kernels of a client's, which are not measured");
}

}  // namespace
}  // namespace inlay::server
