#include "core/compiler/finalists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inlay::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Timings = std::vector<proto::MeasureResult::Timing>;

Finalist Plan(const std::string& name, double median, double spread, int partitions, int foreign) {
  return {name, median, spread, partitions, foreign};
}

// Answers with these medians, one list a measurement; then there is no time.
class Script {
 public:
  explicit Script(std::vector<std::map<int, double>> medians) : medians_(std::move(medians)) {}
  MeasureAgainFn fn() {
    return [this](const std::vector<int>& finalists) -> absl::StatusOr<Timings> {
      asked.push_back(finalists);
      Timings timings;
      if (asked.size() > medians_.size()) return timings;
      for (int i : finalists) {
        timings.emplace_back().set_median_us(medians_[asked.size() - 1].at(i));
        timings.back().set_rounds(5);
      }
      return timings;
    };
  }
  std::vector<std::vector<int>> asked;

 private:
  std::vector<std::map<int, double>> medians_;
};

FinalDecision Decide(const std::vector<Finalist>& finalists, Script* script) {
  return DecideFinal(finalists, script->fn()).value();
}

TEST(Finalists, TheFastestWhereNoneIsNear) {
  Script script({});
  const FinalDecision decision =
      Decide({Plan("native", 100, 2, 3, 0), Plan("mix", 80, 3, 9, 4), Plan("other", 120, 1, 3, 3)}, &script);
  EXPECT_EQ(decision.winner, 1);
  EXPECT_EQ(decision.note, "");
  EXPECT_THAT(script.asked, IsEmpty());
}

TEST(Finalists, ATieGoesToTheFallbackThenToFewerPartitions) {
  Script none({});
  const Finalist native = Plan("native", 100, 3, 5, 0), mix = Plan("mix", 96, 3, 6, 2), big = Plan("big", 98, 3, 1, 1);
  EXPECT_EQ(Decide({native, mix}, &none).winner, 0);
  EXPECT_EQ(Decide({mix, native}, &none).winner, 1) << "whatever the order";
  EXPECT_EQ(Decide({mix, big, native}, &none).winner, 2) << "who needs no library, in however many partitions";
  EXPECT_EQ(Decide({mix, big}, &none).winner, 1);
  EXPECT_EQ(Decide({Plan("cut", 98, 3, 9, 0), native}, &none).winner, 1) << "fewer partitions";
  EXPECT_THAT(Decide({native, mix}, &none).note, HasSubstr("no time was left to measure again"));
  EXPECT_THAT(Decide({native, mix}, &none).note, HasSubstr("so less of libraries"));
}

TEST(Finalists, TheOrderOfNoisyMediansDoesNotMatter) {
  for (double native : {97.0, 100.0, 103.0}) {
    Script noise({{{0, 100}, {1, 101}}, {{0, 101}, {1, 100}}});
    EXPECT_EQ(Decide({Plan("native", native, 4, 5, 0), Plan("mix", 100, 4, 6, 2)}, &noise).winner, 0) << native;
  }
}

TEST(Finalists, WhoIsAheadEachTimeWins) {
  Script script({{{0, 100}, {1, 95}}, {{0, 101}, {1, 96}}, {{0, 100}, {1, 95}}});
  const FinalDecision decision = Decide({Plan("native", 100, 3, 5, 0), Plan("mix", 95, 3, 6, 2)}, &script);
  EXPECT_EQ(decision.winner, 1);
  EXPECT_THAT(decision.note, HasSubstr("a tie of 'native' (100 ±3 us) with 'mix' (95 ±3 us)"));
  EXPECT_THAT(decision.note, HasSubstr("measured 3 more times, 30 runs"));
  EXPECT_THAT(decision.note, HasSubstr("'mix' was ahead each time, by 5.0%"));
}

TEST(Finalists, AheadByNextToNothingIsNotWorthIt) {
  Script script({{{0, 100}, {1, 97.5}}, {{0, 100}, {1, 97.6}}, {{0, 100}, {1, 97.5}}});
  EXPECT_EQ(Decide({Plan("native", 100, 3, 5, 0), Plan("mix", 96, 3, 6, 2)}, &script).winner, 0);
  Script none({});
  EXPECT_THAT(Decide({Plan("native", 100, 3, 5, 0), Plan("mix", 97.4, 3, 6, 2)}, &none).note,
              HasSubstr("less of libraries, and nobody is ahead by 3%"));
  EXPECT_THAT(none.asked, IsEmpty());
  Script scatters({{{0, 100}, {1, 97}}, {{0, 100}, {1, 88}}, {{0, 100}, {1, 97}}});
  EXPECT_EQ(Decide({Plan("native", 100, 3, 5, 0), Plan("mix", 96, 3, 6, 2)}, &scatters).winner, 0)
      << "by more than the gains scatter";
}

TEST(Finalists, NoOneLoadDecidesWhoIsAheadByLittle) {
  const std::vector<Finalist> near = {Plan("native", 100, 0.1, 5, 0), Plan("mix", 96, 0.1, 6, 1)};
  Script differs({{{0, 96}, {1, 100}}, {{0, 97}, {1, 100}}});
  EXPECT_EQ(Decide(near, &differs).winner, 0);
  EXPECT_EQ(differs.asked.size(), 1);
  Script agrees({{{0, 100}, {1, 96}}, {{0, 101}, {1, 97}}, {{0, 100}, {1, 96}}});
  EXPECT_EQ(Decide(near, &agrees).winner, 1);
  Script none({});
  EXPECT_EQ(Decide({Plan("native", 100, 0.1, 5, 0), Plan("mix", 98, 0.1, 6, 1)}, &none).winner, 0);
  EXPECT_EQ(Decide({Plan("native", 100, 0.1, 5, 0), Plan("mix", 94, 0.1, 6, 1)}, &none).winner, 1);
}

TEST(Finalists, NothingMoreIsMeasuredThanDecides) {
  Script preferred_leads({});
  const FinalDecision decision = Decide({Plan("native", 97, 3, 5, 0), Plan("mix", 98, 3, 6, 2)}, &preferred_leads);
  EXPECT_EQ(decision.winner, 0);
  EXPECT_THAT(decision.note, HasSubstr("less of libraries, and not behind"));
  EXPECT_THAT(preferred_leads.asked, IsEmpty());
  Script falls_behind({{{0, 100}, {1, 102}, {2, 95}}, {{0, 100}, {2, 101}}});
  EXPECT_EQ(
      Decide({Plan("native", 100, 3, 5, 0), Plan("a", 96, 3, 6, 2), Plan("b", 96, 3, 7, 2)}, &falls_behind).winner, 0);
  EXPECT_EQ(falls_behind.asked, (std::vector<std::vector<int>>{{0, 1, 2}, {0, 2}}));
}

TEST(Finalists, AnErrorIsPassedOn) {
  auto fails = [](const std::vector<int>&) -> absl::StatusOr<Timings> { return absl::CancelledError("gone"); };
  EXPECT_EQ(DecideFinal({Plan("native", 100, 3, 5, 0), Plan("mix", 96, 3, 6, 2)}, fails).status(),
            absl::CancelledError("gone"));
}

}  // namespace
}  // namespace inlay::compiler
