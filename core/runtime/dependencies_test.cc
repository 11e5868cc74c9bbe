#include "core/runtime/dependencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace inlay::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LoadDependencies, GivesTheAddressesInOrder) {
  std::vector<void*> addresses;
  ASSERT_TRUE(LoadDependencies({{"libm.so.6", "libc6", {"a"}, {"cos", "erf"}}, {"libc.so.6", "libc6", {}, {"atoi"}}},
                               &addresses)
                  .ok());
  ASSERT_EQ(addresses.size(), 3);
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(addresses[0])(0), 1);
  EXPECT_EQ(reinterpret_cast<int (*)(const char*)>(addresses[2])("42"), 42);
}

TEST(LoadDependencies, AMissingLibraryIsNamedWithItsUserAndItsSource) {
  std::vector<void*> addresses;
  const Status s = LoadDependencies({{"libno_such.so.9", "no-such==1 (PyPI)", {"fake", "other"}, {}}}, &addresses);
  EXPECT_EQ(s.code(), Code::kFailedPrecondition);
  EXPECT_THAT(s.message(), AllOf(HasSubstr("needs libno_such.so.9 (for fake, other)"),
                                 HasSubstr("No such file or directory"), HasSubstr("no-such==1 (PyPI)")));
}

TEST(LoadDependencies, AnotherVersionOfALibraryIsNamedByWhatItLacks) {
  std::vector<void*> addresses;
  const Status s =
      LoadDependencies({{"libm.so.6", "libc6 (Debian)", {"fake"}, {"cos", "no_such_function"}}}, &addresses);
  EXPECT_EQ(s.code(), Code::kFailedPrecondition);
  EXPECT_THAT(s.message(), AllOf(HasSubstr("needs no_such_function of libm.so.6 (for fake)"), HasSubstr("libc6")));
}

}  // namespace
}  // namespace inlay::runtime
