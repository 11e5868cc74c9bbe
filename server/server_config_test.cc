#include "server/server_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/file_system.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;

TEST(ServerConfig, DefaultsAreComplete) {
  auto config = CompleteServerConfig({}, 6);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->workers(), 6);
  EXPECT_TRUE(config->trust_cache_for_jit());
  EXPECT_TRUE(config->measure());
  EXPECT_EQ(config->measure_step_timeout_s(), 30);
  EXPECT_GE(config->measure_memory_bytes(), 1 << 30);
  EXPECT_EQ(config->measure_lock(), "/tmp/inlay-measuring.lock");
  EXPECT_EQ(config->measure_lock_wait_s(), 30);
  ASSERT_EQ(config->listen_size(), 1);
  EXPECT_THAT(config->listen(0), HasSubstr("unix:"));
}

TEST(ServerConfig, OnlyLoopbackAndUnixSockets) {
  for (const char* fine : {"127.0.0.1:0", "localhost:80", "[::1]:5000", "unix:/tmp/x.sock", "127.8.8.8:1"}) {
    EXPECT_TRUE(CheckListenAddress(fine).ok()) << fine;
  }
  for (const char* refused : {"0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.com:80"}) {
    absl::Status status = CheckListenAddress(refused);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(status.message()), HasSubstr("without mTLS or a token"));
  }
  for (const char* nonsense : {"", "unix:", "127.0.0.1", "127.0.0.1:99999", ":", "127.0.0.1:http"}) {
    EXPECT_THAT(std::string(CheckListenAddress(nonsense).message()), HasSubstr("is not an address")) << nonsense;
  }
  EXPECT_THAT(std::string(CheckListenAddress("unix:/" + std::string(200, 'x')).message()), HasSubstr("107"));
}

TEST(ServerConfig, RefusesValuesNamingTheField) {
  proto::ServerConfig config;
  config.set_workers(-1);
  EXPECT_EQ(CompleteServerConfig(config, 2).status(),
            absl::InvalidArgumentError("server config: workers must be 1 to 1024"));
}

TEST(ServerConfig, FileErrorsNameTheLine) {
  auto directory = TempDir::Create("server_config_test");
  ASSERT_TRUE(directory.ok());
  const std::string path = directory->path() + "/config";
  ASSERT_TRUE(WriteFileAtomically(path, "workers: 3\nno_such_field: 1\n").ok());
  auto config = ReadServerConfig(path);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("line 2"));
  ASSERT_TRUE(WriteFileAtomically(path, "workers: 3 listen: '127.0.0.1:0'").ok());
  EXPECT_EQ(ReadServerConfig(path)->workers(), 3);
}

}  // namespace
}  // namespace inlay::server
