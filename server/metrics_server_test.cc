#include "server/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

namespace inlay::server {
namespace {

TEST(MetricsServer, ServesTheRegistryOverHttp) {
  metrics::Registry registry;
  registry.GetCounter("inlay_test_total", "A count").Increment(3);
  auto server = MetricsServer::Start("127.0.0.1:0", &registry);
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("http://" + (*server)->address());
  auto page = client.Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body, ::testing::HasSubstr("inlay_test_total 3"));
  EXPECT_EQ(client.Get("/nothing")->status, 404);
}

TEST(MetricsServer, AnAddressInUseIsAnError) {
  metrics::Registry registry;
  auto first = MetricsServer::Start("127.0.0.1:0", &registry);
  ASSERT_TRUE(first.ok());
  auto second = MetricsServer::Start("256.0.0.1:1", &registry);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MetricsServer::Start("nonsense", &registry).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay::server
