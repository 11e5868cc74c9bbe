// What the C++ tests of the seed documents share. test_cpp.py builds them against the installed client, starts the
// daemon, and gives them by environment: INLAY_SERVER, and in INLAY_TEST_DATA a model that Python imported and saved,
// inputs for it, and onnxruntime's outputs.
#ifndef INLAY_TESTS_SEEDS_CPP_SUPPORT_H_
#define INLAY_TESTS_SEEDS_CPP_SUPPORT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace seeds {

namespace fs = std::filesystem;
using P = inlay::Module;  // its properties

inline fs::path Data() { return std::getenv("INLAY_TEST_DATA"); }

inline std::string Bytes(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<float> Floats(const fs::path& file) {
  const std::string bytes = Bytes(file);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The value, or a failure of the test that says the status.
template <typename T>
T Get(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }
template <typename T>
std::string Text(const absl::StatusOr<T>& value) {
  return Text(value.status());
}

inline inlay::IRModule Model() { return Get(inlay::LoadModule((Data() / "model.inlay").string())); }

inline std::vector<inlay::Tensor> Inputs(const inlay::Signature& signature) {
  std::vector<inlay::Tensor> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const auto values = Floats(Data() / ("input" + std::to_string(i) + ".f32"));
    inputs.push_back(Get(inlay::MakeTensor<float>(signature.inputs[i].shape, values)));
  }
  return inputs;
}

inline void ExpectClose(const std::vector<inlay::Tensor>& got) {
  ASSERT_EQ(got.size(), 1u);
  const auto values = inlay::Values<float>(got[0]);
  const std::vector<float> want = Floats(Data() / "output0.f32");
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(values[i], want[i], 1e-4 + 1e-3 * std::abs(want[i])) << i;
}

// Runs the model of the test data, and compares with onnxruntime.
inline void ExpectRuns(const inlay::Module& module) { ExpectClose(Get(module.Run(Inputs(Get(module.signature()))))); }

inline inlay::Executable Build() { return Get(inlay::Build(Model(), "llvm -mcpu=native")); }

// Each test has a folder of its own.
class Seeds : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "inlay-cpp-XXXXXX").string();
    folder = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string File(const std::string& name) const { return (folder / name).string(); }
  fs::path folder;
};

}  // namespace seeds

#endif  // INLAY_TESTS_SEEDS_CPP_SUPPORT_H_
