// The light half: what OpenBLAS claims and what it would cost.
#include "core/backends/openblas/library.h"

namespace inlay::openblas {
namespace {

struct OpenblasBackend : backends::GemmBackend {
  OpenblasBackend() : GemmBackend(Library()) {}
};

INLAY_REGISTER_BACKEND(OpenblasBackend);

}  // namespace
}  // namespace inlay::openblas
