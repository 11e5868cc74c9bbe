// dead_code: removes bindings whose value nobody needs. (call_packed stays: it may have effects.)
//
//   %1 = exp(%x)
//   %2 = relu(%x)          ->      %2 = relu(%x)
//   return %2                      return %2
#ifndef INLAY_CORE_PASSES_DEAD_CODE_H_
#define INLAY_CORE_PASSES_DEAD_CODE_H_

#include "core/passes/pass.h"

namespace inlay::passes {

PassPtr DeadCode();

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_DEAD_CODE_H_
