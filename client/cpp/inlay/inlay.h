// All of the client: include this, or what you use.
#ifndef INLAY_INLAY_H_
#define INLAY_INLAY_H_

#include "inlay/builder.h"     // IWYU pragma: export
#include "inlay/client.h"      // IWYU pragma: export
#include "inlay/config.h"      // IWYU pragma: export
#include "inlay/error.h"       // IWYU pragma: export
#include "inlay/executable.h"  // IWYU pragma: export
#include "inlay/ir_module.h"   // IWYU pragma: export
#include "inlay/library.h"     // IWYU pragma: export
#include "inlay/module.h"      // IWYU pragma: export
#include "inlay/shape.h"       // IWYU pragma: export
#include "inlay/tensor.h"      // IWYU pragma: export

#endif  // INLAY_INLAY_H_
