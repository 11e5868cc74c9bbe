// GemmDescription: a partition that is one matrix product and the elementwise operators behind it, as the codegen of a
// GEMM library (libxsmm, OpenBLAS) writes it into an object and as its runtime shim reads it when it is loaded.
//
//   C[batch, i, j] = steps(sum over p of A[batch, i, p] * B[batch, p, j])
//
// C is dense and row-major; it is the one output. On the wire: JSON. Plain values; any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_GEMM_DESCRIPTION_H_
#define INLAY_CORE_BACKENDS_COMMON_GEMM_DESCRIPTION_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace inlay::backends {

inline constexpr int kGemmDescriptionVersion = 1;
// Of `options`: a product with fewer floating-point operations is not split over threads. Below the default one takes a
// few microseconds: less than waking a thread.
inline constexpr char kSplitFlops[] = "split-flops";
inline constexpr int64_t kDefaultSplitFlops = 1000000;

// Where the elements of a matrix are, in elements of the input; a row, a column or a number that is broadcast has
// strides of 0.
struct GemmOperand {
  int input = -1;     // parameter of the partition; -1: `number` everywhere
  double number = 0;  // f32 numbers survive a double
  std::vector<int64_t> batch_strides;
  int64_t row_stride = 0, column_stride = 0;
};

// x is C so far. Of one argument: relu leaky_relu clip gelu gelu_tanh silu sigmoid tanh; of two: add sub rsub
// (operand - x) mul div.
struct GemmStep {
  std::string op;
  bool binary = false;
  double alpha = 0, beta = 0;  // leaky_relu: slope; clip: bounds, infinite where there is none
  bool has_alpha = false, has_beta = false;
  GemmOperand operand;
};

struct GemmDescription {
  int version = kGemmDescriptionVersion;
  std::string dtype;                    // "f32", "f64"
  std::vector<int64_t> input_elements;  // of each parameter
  std::vector<int64_t> batch;           // extents, outermost first; empty: one product
  int64_t m = 0, n = 0, k = 0;
  GemmOperand a, b;  // column_stride 1 (row-major) or row_stride 1 (transposed)
  bool b_constant = false;
  std::vector<GemmStep> steps;
  std::map<std::string, int64_t> options;  // the codegen target's attributes, defaults included
  int64_t workspace_bytes = 0;

  bool a_transposed() const { return a.column_stride != 1; }
  bool b_transposed() const { return b.column_stride != 1; }
  int64_t num_products() const {
    int64_t products = 1;
    for (int64_t extent : batch) products *= extent;
    return products;
  }
  double flops() const { return 2.0 * num_products() * m * n * k; }

  // Along an extent of 1 a stride says nothing: then row-major, with the stride that the libraries accept.
  void Normalise() {
    if (k == 1) a.column_stride = 1;
    if (n == 1) b.column_stride = 1;
    if (m == 1 && a.column_stride == 1) a.row_stride = k;
    if (k == 1 && b.column_stride == 1) b.row_stride = n;
  }
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GemmOperand, input, number, batch_strides, row_stride, column_stride)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GemmStep, op, binary, alpha, beta, has_alpha, has_beta, operand)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GemmDescription, version, dtype, input_elements, batch, m, n, k, a, b, b_constant,
                                   steps, options, workspace_bytes)

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_GEMM_DESCRIPTION_H_
