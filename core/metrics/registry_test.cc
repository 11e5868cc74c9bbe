#include "core/metrics/registry.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(RegistryTest, SameNameAndLabelsAreTheSameObject) {
  Registry registry;
  Counter& a = registry.GetCounter("inlay_hits_total", "Hits", {{"store", "disk"}});
  Counter& b = registry.GetCounter("inlay_hits_total", "Hits", {{"store", "memory"}});
  EXPECT_EQ(&a, &registry.GetCounter("inlay_hits_total", "Hits", {{"store", "disk"}}));
  EXPECT_NE(&a, &b);
}

TEST(RegistryTest, SnapshotHasEveryKind) {
  Registry registry;
  registry.GetCounter("inlay_hits_total", "Hits", {{"a", "x"}, {"b", "y"}}).Increment(3);
  registry.GetGauge("inlay_size_bytes", "Size").Set(7);
  Histogram& latency = registry.GetHistogram("inlay_latency_seconds", "Latency");
  latency.Observe(0.5);
  latency.Observe(1.5);
  auto queue = registry.AddCallbackGauge("inlay_queue", "Queue", {{"q", "1"}}, [] { return 5.0; });
  EXPECT_THAT(registry.Snapshot(),
              UnorderedElementsAre(Pair("inlay_hits_total{a=\"x\",b=\"y\"}", 3), Pair("inlay_size_bytes", 7),
                                   Pair("inlay_latency_seconds_count", 2), Pair("inlay_latency_seconds_sum", 2),
                                   Pair("inlay_queue{q=\"1\"}", 5)));
}

TEST(RegistryTest, TextFormat) {
  Registry registry;
  registry.GetCounter("inlay_hits_total", "Blobs found", {{"store", "disk"}}).Increment();
  registry.GetHistogram("inlay_latency_seconds", "Latency", {}, {0.1, 1}).Observe(0.5);
  std::string text = registry.PrometheusText();
  EXPECT_THAT(text, HasSubstr("# HELP inlay_hits_total Blobs found\n# TYPE inlay_hits_total counter\n"
                              "inlay_hits_total{store=\"disk\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("inlay_latency_seconds_bucket{le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inlay_latency_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST(RegistryTest, CallbackEndsWithItsRegistration) {
  Registry registry;
  auto one = registry.AddCallbackGauge("inlay_workers", "Workers", {{"state", "idle"}}, [] { return 1.0; });
  auto two = registry.AddCallbackGauge("inlay_workers", "Workers", {{"state", "busy"}}, [] { return 2.0; });
  std::string text = registry.PrometheusText();
  EXPECT_THAT(text, HasSubstr("inlay_workers{state=\"idle\"} 1"));
  EXPECT_EQ(text.find("# TYPE inlay_workers"), text.rfind("# TYPE inlay_workers")) << "one family, one heading";
  two.reset();
  EXPECT_THAT(registry.PrometheusText(), Not(HasSubstr("busy")));
}

TEST(TimerTest, Observes) {
  Registry registry;
  Histogram& latency = registry.GetHistogram("inlay_latency_seconds", "Latency");
  {
    Timer timer(latency);
  }
  EXPECT_EQ(registry.Snapshot()["inlay_latency_seconds_count"], 1);
}

}  // namespace
}  // namespace inlay::metrics
