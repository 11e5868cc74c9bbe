#include "core/collage/scale_fit.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "core/collage/operator_kind.h"

namespace inlay::collage {
namespace {

struct Measured {
  std::string backend;
  double ratio;
};

// Sites at which these were measured; "native" is the fallback.
void Add(proto::CostSamples* samples, const std::string& kind, const std::vector<Measured>& measured, int count = 1,
         const std::string& version = "1") {
  for (int i = 0; i < count; ++i) {
    proto::CostSamples::Site* site = samples->add_sites();
    site->set_key(absl::StrCat(100000 + samples->sites_size()));
    site->set_kind(kind);
    for (const Measured& one : measured) {
      proto::CostSamples::Sample* sample = site->add_samples();
      sample->set_backend(one.backend);
      sample->set_version(version);
      sample->set_ratio(one.ratio);
      sample->set_fallback(one.backend == "native");
    }
  }
}

TEST(ScaleFit, TheHandSetValuesWhereLittleIsKnown) {
  EXPECT_EQ(ScaleFit().Scale("native", "conv"), 1);
  proto::CostSamples samples;
  Add(&samples, "conv", {{"native", 3}}, 7);
  EXPECT_EQ(ScaleFit(samples).Scale("native", "conv"), 1);
  EXPECT_EQ(ScaleFit(samples).num_samples(), 0);
}

TEST(ScaleFit, ManySamplesPrevailAndOutliersDoNotMatter) {
  proto::CostSamples samples;
  Add(&samples, "conv", {{"native", 2}}, 200);
  Add(&samples, "matmul", {{"native", 0.5}}, 200);
  Add(&samples, "conv", {{"native", 90}}, 30);
  Add(&samples, "conv", {{"native", 1e9}});
  const ScaleFit fit(samples);
  EXPECT_NEAR(fit.Scale("native", "conv"), 2, 0.05);
  EXPECT_NEAR(fit.Scale("native", "matmul"), 0.5, 0.02);
  EXPECT_EQ(fit.num_samples(), 430) << "one is off too far to be any";
}

TEST(ScaleFit, BackendsAreComparedWhereBothWereMeasured) {
  proto::CostSamples samples;
  Add(&samples, "matmul", {{"native", 0.8}, {"lib", 1}}, 40);
  Add(&samples, "matmul", {{"native", 1.6}}, 60);  // of which the library takes none
  const ScaleFit fit(samples);
  EXPECT_NEAR(fit.Scale("native", "matmul"), 1.6, 0.05);
  EXPECT_NEAR(fit.Scale("lib", "matmul") / fit.Scale("native", "matmul"), 1.25, 0.05);
}

TEST(ScaleFit, WhatIsUnknownIsAsFastAsTheFallbackAndFewSamplesAreDrawnToThat) {
  proto::CostSamples samples;
  Add(&samples, "conv", {{"native", 0.5}}, 20);
  Add(&samples, "conv", {{"native", 0.5}, {"b", 1}}, 4);
  Add(&samples, "conv", {{"native", 0.5}, {"c", 4}}, 2);
  Add(&samples, "conv", {{"d", 4}}, 10);
  const ScaleFit fit(samples);
  EXPECT_NEAR(fit.Scale("native", "conv"), 0.5, 1e-9);
  EXPECT_NEAR(fit.Scale("e", "conv"), 0.5, 1e-9)
      << "a backend that nobody measured does not look slow beside the others";
  EXPECT_NEAR(fit.Scale("c", "conv"), 0.5, 1e-9) << "two samples are none";
  EXPECT_NEAR(fit.Scale("d", "conv"), 0.5, 1e-9) << "nor are those with nothing beside them";
  EXPECT_GT(fit.Scale("b", "conv"), 0.65);
  EXPECT_LT(fit.Scale("b", "conv"), 1);
  EXPECT_NEAR(fit.Scale("b", "lstm"), 0.5, 1e-9) << "convolutions say nothing of a backend's other kinds";
}

TEST(ScaleFit, WhatAnOlderVersionTookIsForgotten) {
  proto::CostSamples old, more;
  Add(&old, "matmul", {{"native", 2}, {"lib", 1}}, 20);
  Add(&more, "matmul", {{"native", 0.5}}, 10, "2");
  const proto::CostSamples merged = MergeSamples(old, more);
  EXPECT_EQ(ScaleFit(merged).num_samples(), 10 + 20) << "the library's stay";
  EXPECT_NEAR(ScaleFit(merged).Scale("native", "matmul"), 0.5, 1e-9);
}

TEST(ScaleFit, TheSameWhateverCameFirst) {
  proto::CostSamples all;
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const double ratio = 0.1 + static_cast<double>(random() % 100);
    if (i % 3 == 0) Add(&all, "conv", {{"native", ratio}, {"lib", 2 * ratio}});
    if (i % 3 != 0) Add(&all, "matmul", {{"native", ratio}});
  }
  proto::CostSamples forwards, backwards;
  for (int i = 0; i < 500; i += 50) {
    proto::CostSamples from_start, from_end;
    for (int j = i; j < i + 50; ++j) {
      *from_start.add_sites() = all.sites(j);
      *from_end.add_sites() = all.sites(499 - j);
    }
    forwards = MergeSamples(forwards, from_start);
    backwards = MergeSamples(backwards, from_end);
  }
  EXPECT_EQ(forwards.SerializeAsString(), backwards.SerializeAsString());
  EXPECT_EQ(forwards.sites_size(), 128) << "64 a kind";
  EXPECT_EQ(ScaleFit(forwards).Scale("lib", "conv"), ScaleFit(backwards).Scale("lib", "conv"));
  EXPECT_EQ(MergeSamples(forwards, all).SerializeAsString(), forwards.SerializeAsString());
}

TEST(OperatorKind, TheCallWithTheMostWork) {
  auto f32 = [](std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); };
  auto weight = [&](std::vector<int64_t> shape) { return ir::MakeWeight(f32(shape), Digest::Of("w"), "w"); };
  auto kind = [&](const ir::TensorType& x, const std::string& op, std::vector<ir::Operand> more, ir::Attrs attrs = {}) {
    ir::Function function;
    ir::Builder builder(&function);
    std::vector<ir::Operand> args = {builder.Param("x", x)};
    args.insert(args.end(), more.begin(), more.end());
    auto y = builder.Call(op, args, attrs);
    EXPECT_TRUE(y.ok()) << y.status();
    builder.Return({*builder.Call("relu", {*y})});
    return OperatorKind(function);
  };
  EXPECT_EQ(kind(f32({8, 16}), "matmul", {weight({16, 8})}), "matmul");
  EXPECT_EQ(kind(f32({1, 16}), "matmul", {weight({16, 8})}), "matmul of a row");
  const ir::TensorType image = f32({1, 8, 10, 10});
  EXPECT_EQ(kind(image, "conv", {weight({4, 8, 1, 1})}), "conv 1x1");
  EXPECT_EQ(kind(image, "conv", {weight({4, 8, 3, 3})}), "conv 3x3");
  EXPECT_EQ(kind(image, "conv", {weight({4, 8, 7, 7})}), "conv");
  EXPECT_EQ(kind(image, "conv", {weight({8, 1, 3, 3})}, {{"groups", int64_t{8}}}), "conv depthwise");
  EXPECT_EQ(kind(image, "conv", {weight({8, 2, 3, 3})}, {{"groups", int64_t{4}}}), "conv grouped");
  EXPECT_EQ(kind(image, "exp", {}), "pointwise");
  EXPECT_EQ(kind(image, "transpose", {}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}}), "movement");
}

}  // namespace
}  // namespace inlay::collage
