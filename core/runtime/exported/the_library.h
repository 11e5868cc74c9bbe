// The one Library of an exported library, which its entry points share.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_THE_LIBRARY_H_
#define INLAY_CORE_RUNTIME_EXPORTED_THE_LIBRARY_H_

#include "core/runtime/exported/library.h"

namespace inlay::runtime {

Library& TheLibrary();

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_THE_LIBRARY_H_
