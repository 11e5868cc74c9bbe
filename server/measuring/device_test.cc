#include "server/measuring/device.h"

#include "core/base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::server {
namespace {

TEST(Device, SaysWhatTimesDependOn) {
  TempDir root = TempDir::Create("device_test").value();
  auto write = [&](const std::string& path, const std::string& text) {
    const std::string full = JoinPath(root.path(), path);
    ASSERT_TRUE(FileSystem::Default()->CreateDirectories(DirName(full)).ok());
    ASSERT_TRUE(WriteFileAtomically(full, text).ok());
  };
  const std::string processor =
      "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: Fast CPU\nstepping\t: 1\ncpu MHz\t\t: 2345.678\n\n";
  write("proc/cpuinfo", "processor\t: 0\n" + processor + "processor\t: 1\n" + processor);
  EXPECT_EQ(DescribeDevice(root.path()), "Fast CPU family 25 model 17 stepping 1; 2 CPUs");
  const std::string cpu = "sys/devices/system/cpu/cpu0/";
  write(cpu + "cache/index0/level", "1\n");
  write(cpu + "cache/index0/type", "Data\n");
  write(cpu + "cache/index0/size", "32K\n");
  write(cpu + "cache/index1/level", "2\n");
  write(cpu + "cache/index1/type", "Unified\n");
  write(cpu + "cache/index1/size", "1024K\n");
  write(cpu + "cpufreq/cpuinfo_max_freq", "3700000\n");
  write(cpu + "cpufreq/scaling_governor", "performance\n");
  EXPECT_EQ(DescribeDevice(root.path()),
            "Fast CPU family 25 model 17 stepping 1; 2 CPUs; L1d 32K, L2 1024K; 3700000 kHz, governor performance");
  EXPECT_EQ(DescribeDevice("/nowhere"), "");
}

TEST(Device, OfThisMachineIsStable) {
  EXPECT_THAT(DescribeDevice(), testing::HasSubstr("CPUs"));
  EXPECT_EQ(DescribeDevice(), DescribeDevice());
}

}  // namespace
}  // namespace inlay::server
