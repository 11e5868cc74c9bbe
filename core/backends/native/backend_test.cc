// What the daemon's half of the native backend accepts.
#include <gtest/gtest.h>

#include "core/backends/native/native_backend.h"

namespace inlay::native {
namespace {

absl::Status Check(const std::string& codegen_target) {
  return CheckNativeTarget(*target::Target::Parse("llvm -mcpu=x86-64-v3")->Completed(),
                           *target::Target::Parse(codegen_target));
}

TEST(NativeBackendTest, CodegenTarget) {
  EXPECT_TRUE(Check("native").ok());
  EXPECT_TRUE(Check("native -winograd=0").ok());
  EXPECT_TRUE(Check("native -winograd=1").ok());
  absl::Status status = Check("native -winograd=fast");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the codegen target native: winograd=fast must be 0 or 1");
  status = Check("native -tiles=4");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the codegen target native has no attribute 'tiles'; it has winograd");
}

}  // namespace
}  // namespace inlay::native
