#include "core/base/status_macros.h"

#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace inlay {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(x / 2);
}

absl::StatusOr<int> Quarter(int x) {
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(x));
  INLAY_ASSIGN_OR_RETURN(auto quarter, Half(*half));
  return *quarter;
}

absl::Status CheckQuarter(int x) {
  INLAY_RETURN_IF_ERROR(Annotate(Quarter(x), absl::StrCat("quarter of ", x)).status());
  return absl::OkStatus();
}

TEST(StatusMacrosTest, PassesValuesAndErrors) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
  EXPECT_TRUE(CheckQuarter(4).ok());
}

TEST(StatusMacrosTest, AnnotateKeepsCodeAndPayload) {
  EXPECT_EQ(CheckQuarter(6), absl::InvalidArgumentError("quarter of 6: odd"));
  absl::Status status = absl::DataLossError("x");
  status.SetPayload("url", absl::Cord("payload"));
  absl::Status annotated = Annotate(status, "reading");
  EXPECT_EQ(annotated.message(), "reading: x");
  EXPECT_EQ(annotated.GetPayload("url"), absl::Cord("payload"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "reading").ok());
}

}  // namespace
}  // namespace inlay
