// The light half: what libxsmm claims and what it would cost.
#include "core/backends/libxsmm/library.h"

namespace inlay::libxsmm {
namespace {

struct LibxsmmBackend : backends::GemmBackend {
  LibxsmmBackend() : GemmBackend(Library()) {}
};

INLAY_REGISTER_BACKEND(LibxsmmBackend);

}  // namespace
}  // namespace inlay::libxsmm
