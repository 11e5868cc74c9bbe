// The worker's half.
#include "core/backends/common/gemm_codegen.h"
#include "core/backends/libxsmm/library.h"
#include "core/backends/libxsmm/runtime/library_id.h"

namespace inlay::libxsmm {
namespace {

struct LibxsmmCodegen : backends::GemmCodegen {
  LibxsmmCodegen() : GemmCodegen(Library(), INLAY_LIBXSMM_ID) {}
};

INLAY_REGISTER_CODEGEN(LibxsmmCodegen);

}  // namespace
}  // namespace inlay::libxsmm
