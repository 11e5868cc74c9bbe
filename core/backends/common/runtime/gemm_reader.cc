#include "core/backends/common/runtime/gemm_reader.h"

#include <stdexcept>

namespace inlay::backends {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  // extents and strides: the libraries count in int

[[noreturn]] void Fail(const std::string& what) { throw std::runtime_error("gemm description: " + what); }

void CheckExtent(int64_t extent) {
  if (extent < 1 || extent >= kMost) Fail("an extent is out of range");
}

void CheckOperand(const GemmDescription& d, const GemmOperand& operand, int64_t rows, int64_t columns) {
  if (operand.batch_strides.size() != d.batch.size()) Fail("strides and extents differ in number");
  if (operand.input < 0) return;
  if (operand.input >= static_cast<int>(d.input_elements.size())) Fail("no such input");
  int64_t last = 0;
  auto reach = [&](int64_t stride, int64_t extent) {
    if (stride < 0 || stride >= kMost) Fail("a stride is out of range");
    last += stride * (extent - 1);
    if (last >= d.input_elements[operand.input]) Fail("an operand reaches outside of its input");
  };
  reach(operand.row_stride, rows);
  reach(operand.column_stride, columns);
  for (size_t i = 0; i < d.batch.size(); ++i) reach(operand.batch_strides[i], d.batch[i]);
}

}  // namespace

GemmDescription ReadGemm(const char* bytes, int64_t size) {
  auto d = nlohmann::json::parse(bytes, bytes + size).get<GemmDescription>();
  if (d.version != kGemmDescriptionVersion) Fail("version " + std::to_string(d.version));
  if (d.dtype != "f32" && d.dtype != "f64") Fail("dtype " + d.dtype);
  for (int64_t extent : {d.m, d.n, d.k}) CheckExtent(extent);
  int64_t products = 1;
  for (int64_t extent : d.batch) {
    CheckExtent(extent);
    if ((products *= extent) >= kMost) Fail("too many products");
  }
  for (int64_t elements : d.input_elements) CheckExtent(elements);
  if (d.a.input < 0 || d.b.input < 0) Fail("a product of a number");
  CheckOperand(d, d.a, d.m, d.k);
  CheckOperand(d, d.b, d.k, d.n);
  // Dense, one of both ways round.
  if (d.a.column_stride == 1 ? d.a.row_stride != d.k : d.a.row_stride != 1 || d.a.column_stride != d.m) Fail("A");
  if (d.b.column_stride == 1 ? d.b.row_stride != d.n : d.b.row_stride != 1 || d.b.column_stride != d.k) Fail("B");
  for (const GemmStep& step : d.steps) {
    if (!step.binary) continue;
    CheckOperand(d, step.operand, d.m, d.n);
    if (step.operand.column_stride > 1) Fail("a strided operand");
  }
  return d;
}

}  // namespace inlay::backends
