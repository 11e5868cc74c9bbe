// The worker binary by itself: one action from a file, as a Remote Execution worker runs it; and what it does with its
// pipes.
#include <fcntl.h>
#include <unistd.h>

#include "core/base/file_system.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/worker/frame.h"
#include "server/worker/testing.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class WorkerMainTest : public ::testing::Test {
 protected:
  absl::Status Run(const std::string& action) {
    EXPECT_TRUE(WriteFileAtomically(dir_.path() + "/action", action).ok());
    SubprocessOptions options;
    options.argv = {"server/worker/test_worker", "--action=" + dir_.path() + "/action", "--out=" + out_,
                    "--scratch_dir=" + dir_.path()};
    return RunSubprocess(options, absl::Seconds(30)).status();
  }
  TempDir dir_ = TempDir::Create("worker_main_test").value();
  const std::string out_ = dir_.path() + "/out";
};

TEST_F(WorkerMainTest, OneAction) {
  absl::Status status = Run(FakeAction().SerializeAsString());
  ASSERT_TRUE(status.ok()) << status;
  const std::string first = ReadFile(out_).value();
  proto::StaticLibrary library;
  ASSERT_TRUE(library.ParseFromString(first));
  EXPECT_EQ(library.manifest().functions(0).symbol(), "inlay_f");
  ASSERT_TRUE(Run(FakeAction().SerializeAsString()).ok());
  EXPECT_EQ(ReadFile(out_).value(), first) << "a function of the action alone";
  EXPECT_THAT(FileSystem::Default()->List(dir_.path()).value(), UnorderedElementsAre("action", "out"));
}

TEST_F(WorkerMainTest, AnActionThatFailsLeavesNoFile) {
  absl::Status status = Run(FakeAction({{"behaviour", "fail"}}).SerializeAsString());
  EXPECT_THAT(status.message(), HasSubstr("exited with code 1"));
  EXPECT_THAT(status.message(), HasSubstr("fake: failing on request"));
  EXPECT_FALSE(FileSystem::Default()->Stat(out_).ok());
  EXPECT_THAT(Run("\xff\xff not a message").message(), HasSubstr("is no CompileAction"));
}

TEST_F(WorkerMainTest, SaysWhatItHas) {
  SubprocessOptions options;
  options.argv = {"server/worker/test_worker", "--backends"};
  EXPECT_EQ(RunSubprocess(options, absl::Seconds(30)).value().stdout_bytes, "fake fake 1\n");
}

TEST_F(WorkerMainTest, EndsWithItsInput) {
  SubprocessOptions options;
  options.argv = {"server/worker/test_worker", "--scratch_dir=" + dir_.path()};
  EXPECT_TRUE(RunSubprocess(options, absl::Seconds(30)).ok()) << "standard input is /dev/null";
  proto::WorkerRequest ping;
  ping.set_id(7);
  ping.mutable_ping();
  auto result = RunSubprocess(options, absl::Seconds(30), EncodeFrame(ping).value());
  ASSERT_TRUE(result.ok()) << result.status();
  proto::WorkerResponse response;
  ASSERT_TRUE(response.ParseFromString(result->stdout_bytes.substr(kFrameHeader)));
  EXPECT_EQ(response.id(), 7);
  EXPECT_EQ(response.backends(0).name(), "fake");
  EXPECT_GT(response.peak_rss_bytes(), 1 << 20);
}

TEST_F(WorkerMainTest, RefusesWhatIsNoRequest) {
  SubprocessOptions options;
  options.argv = {"server/worker/test_worker"};
  EXPECT_THAT(RunSubprocess(options, absl::Seconds(30), std::string("\x03\0\0\0\xff\xff\xff", 7)).status().message(),
              HasSubstr("a frame that is no request"));
  EXPECT_THAT(RunSubprocess(options, absl::Seconds(30), "\xff\xff\xff\xff").status().message(),
              HasSubstr("a frame of 4294967295 bytes"));
  EXPECT_THAT(RunSubprocess(options, absl::Seconds(30), std::string("\x09\0\0\0abc", 7)).status().message(),
              HasSubstr("breaks off"));
  // A request of nothing: an answer, not the end.
  auto result = RunSubprocess(options, absl::Seconds(30), EncodeFrame(proto::WorkerRequest()).value());
  ASSERT_TRUE(result.ok()) << result.status();
  proto::WorkerResponse response;
  ASSERT_TRUE(response.ParseFromString(result->stdout_bytes.substr(kFrameHeader)));
  EXPECT_EQ(response.code(), static_cast<int>(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace inlay::server
