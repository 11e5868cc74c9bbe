// XNNPACK operators of one step.
//
// XNNPACK gets no thread pool: an operator runs in the thread that calls it. A step for several threads is several
// operators instead, each for a part of the result (output channels, groups, channels, rows), with its part of the
// weights packed; they share the tensors by strides and offsets.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_OPERATORS_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_OPERATORS_H_

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/backends/xnnpack/description.h"
#include "xnnpack.h"

namespace inlay::xnnpack {

// XNNPACK refused or failed.
class LibraryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws LibraryError where the status is not success; `what` names the step.
void ThrowIfError(xnn_status status, const char* what);

struct DeleteOperator {
  void operator()(xnn_operator_t op) const { xnn_delete_operator(op); }
};

// One operator and the part of the step's tensors that it works on. Offsets are in elements.
struct Piece {
  std::unique_ptr<xnn_operator, DeleteOperator> op;
  int a_arg = 0, b_arg = -1;  // of the step's arguments; -1: none
  int64_t a_offset = 0, b_offset = 0, out_offset = 0;
  // Points the operator at tensors. Allocates on its first call only.
  std::function<xnn_status(xnn_operator_t op, const float* a, const float* b, float* out)> setup;
};

// `constants[i]`: the data of argument i where it is constant (weights, bias), else nullptr; read here only. At most
// num_threads pieces, fewer where the work is small. Throws LibraryError, std::bad_alloc.
std::vector<Piece> MakePieces(const Step& step, const Description& description,
                              const std::vector<const float*>& constants, int num_threads);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_OPERATORS_H_
