// Without the library: everything links, starts, and says what is missing.
#include "core/backends/xnnpack/runtime/loaded_library.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "xnnpack.h"

namespace inlay::xnnpack {
namespace {

using ::testing::HasSubstr;

TEST(LoadedLibrary, IsNeededForCallsOnly) {
  EXPECT_EQ(xnn_initialize(nullptr), xnn_status_uninitialized);
  const std::string missing = LoadLibraryFrom("libnot_on_this_machine.so.7");
  EXPECT_THAT(missing, HasSubstr("libnot_on_this_machine.so.7"));
  EXPECT_THAT(missing, HasSubstr("libxnnpack0"));
  // There, but something else.
  EXPECT_THAT(LoadLibraryFrom("libm.so.6"), HasSubstr("xnn_"));
  EXPECT_EQ(xnn_initialize(nullptr), xnn_status_uninitialized);
}

TEST(LoadedLibrary, Works) {
  ASSERT_EQ(LoadLibrary(), "");
  EXPECT_EQ(xnn_initialize(nullptr), xnn_status_success);
}

}  // namespace
}  // namespace inlay::xnnpack
