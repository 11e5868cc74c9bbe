// The worker's half.
#include "core/backends/common/gemm_codegen.h"
#include "core/backends/openblas/library.h"
#include "core/backends/openblas/runtime/library_id.h"

namespace inlay::openblas {
namespace {

struct OpenblasCodegen : backends::GemmCodegen {
  OpenblasCodegen() : GemmCodegen(Library(), INLAY_OPENBLAS_ID) {}
};

INLAY_REGISTER_CODEGEN(OpenblasCodegen);

}  // namespace
}  // namespace inlay::openblas
