#include "server/service/tensor_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inlay::server {
namespace {

using ::testing::HasSubstr;

const runtime::OpenShapes kStatic;

std::vector<runtime::NamedTensor> Signature() {
  return {{"x", {runtime::DType::kF32, {2, 3}}}, {"ids", {runtime::DType::kI64, {1}}}};
}

proto::TensorChunk Chunk(int index, const runtime::TensorType* type, std::string data) {
  proto::TensorChunk chunk;
  chunk.set_index(index);
  if (type != nullptr) *chunk.mutable_type() = ToProto(*type);
  chunk.set_data(std::move(data));
  return chunk;
}

TEST(InputCollector, CollectsChunksInAnyOrderOfInputs) {
  auto signature = Signature();
  InputCollector inputs(signature, kStatic);
  ASSERT_TRUE(inputs.Add(Chunk(1, &signature[1].type, std::string(8, 'i'))).ok());
  ASSERT_TRUE(inputs.Add(Chunk(0, &signature[0].type, std::string(10, 'a'))).ok());
  EXPECT_EQ(inputs.Finish(), absl::InvalidArgumentError("input 0 ('x', f32[2, 3]) has 24 bytes; 10 were sent"));
  ASSERT_TRUE(inputs.Add(Chunk(0, nullptr, std::string(14, 'b'))).ok());
  ASSERT_TRUE(inputs.Finish().ok());
  EXPECT_EQ(std::string(static_cast<const char*>(inputs.pointers()[0]), 24),
            std::string(10, 'a') + std::string(14, 'b'));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(inputs.pointers()[0]) % 64, 0);
}

TEST(InputCollector, RefusesWhatDoesNotFitNamingTheInput) {
  auto signature = Signature();
  auto refuse = [&](std::vector<proto::TensorChunk> chunks) {
    InputCollector inputs(signature, kStatic);
    absl::Status status;
    for (const auto& chunk : chunks) {
      if (status.ok()) status = inputs.Add(chunk);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refuse({Chunk(7, &signature[0].type, "")}), HasSubstr("the model has 2 inputs"));
  EXPECT_THAT(refuse({Chunk(-1, &signature[0].type, "")}), HasSubstr("the model has 2 inputs"));
  EXPECT_THAT(refuse({Chunk(0, nullptr, "abc")}), HasSubstr("lacks the type"));
  EXPECT_THAT(refuse({Chunk(0, &signature[1].type, "")}), HasSubstr("input 0 ('x', f32[2, 3]) was given as"));
  EXPECT_THAT(refuse({Chunk(0, &signature[0].type, std::string(25, 'x'))}), HasSubstr("has 24 bytes; more were sent"));
  EXPECT_THAT(refuse({Chunk(0, &signature[0].type, ""), Chunk(0, &signature[0].type, "")}), HasSubstr("sent twice"));
}

TEST(InputCollector, OpenExtentsAreTheClients) {
  runtime::OpenShapes shapes;
  shapes.registers = {{runtime::ShapeRegister::Kind::kInput, "batch", {0, 0, 1}, {}}};
  shapes.extents = {{"batch", {{1, {0}}}}};
  const std::vector<runtime::NamedTensor> signature = {{"x", {runtime::DType::kF32, {-1, 3}}}};
  auto add = [&](std::vector<int64_t> shape, int64_t bytes) {
    const runtime::TensorType type{runtime::DType::kF32, std::move(shape)};
    InputCollector inputs(signature, shapes);
    absl::Status status = inputs.Add(Chunk(0, &type, std::string(bytes, 'x')));
    if (status.ok()) status = inputs.Finish();
    EXPECT_TRUE(!status.ok() || inputs.types()[0] == type);
    return std::string(status.message());
  };
  EXPECT_EQ(add({5, 3}, 60), "");
  EXPECT_EQ(add({0, 3}, 0), "");
  EXPECT_EQ(add({5, 3}, 48), "input 0 ('x', f32[batch, 3]) has 60 bytes; 48 were sent");
  EXPECT_THAT(add({5, 4}, 0), HasSubstr("input 0 ('x', f32[batch, 3]) was given as"));
  EXPECT_THAT(add({5}, 0), HasSubstr("was given as"));
  EXPECT_THAT(add({-5, 3}, 0), HasSubstr("may have 4294967296 bytes"));
  EXPECT_THAT(add({int64_t{1} << 62, 3}, 0), HasSubstr("may have 4294967296 bytes"));
  EXPECT_THAT(add({int64_t{1} << 30, 3}, 0), HasSubstr("may have 4294967296 bytes"));
}

TEST(SendTensor, SplitsIntoBoundedChunksAndMarksTheLast) {
  const runtime::TensorType type{runtime::DType::kU8, {kChunkBytes * 2 + 5}};
  std::string data(type.NumBytes(), 'd');
  std::vector<proto::TensorChunk> chunks;
  EXPECT_TRUE(SendTensor(3, type, data.data(), [&](proto::TensorChunk chunk) {
    chunks.push_back(std::move(chunk));
    return true;
  }));
  ASSERT_EQ(chunks.size(), 3);
  EXPECT_TRUE(chunks[0].has_type());
  EXPECT_FALSE(chunks[1].has_type());
  EXPECT_EQ(chunks[2].data().size(), 5);
  EXPECT_FALSE(chunks[1].last());
  EXPECT_TRUE(chunks[2].last());
  EXPECT_FALSE(SendTensor(0, type, data.data(), [](proto::TensorChunk) { return false; }));
}

TEST(SendTensor, EmptyTensorIsOneChunk) {
  const runtime::TensorType type{runtime::DType::kF32, {0, 4}};
  int chunks = 0;
  SendTensor(0, type, nullptr, [&](proto::TensorChunk chunk) {
    ++chunks;
    EXPECT_TRUE(chunk.last() && chunk.has_type() && chunk.data().empty());
    return true;
  });
  EXPECT_EQ(chunks, 1);
}

}  // namespace
}  // namespace inlay::server
