// The generated C around a model's kernels: its public header, its private one, and the entry point.
#ifndef INLAY_CORE_ARTIFACT_MLF_ENTRY_H_
#define INLAY_CORE_ARTIFACT_MLF_ENTRY_H_

#include <string>

#include "core/artifact/mlf.h"
#include "core/artifact/mlf_names.h"

namespace inlay::artifact {

// <prefix>.h
std::string MlfHeader(const MlfRequest& request, const MlfNames& names);
// <prefix>_internal.h: the kernels' prototypes and the constants.
std::string MlfInternalHeader(const MlfRequest& request, const MlfNames& names);
// <prefix>.c
std::string MlfEntry(const MlfRequest& request, const MlfNames& names);

// <prefix>_objects.c: a function of plain pointers for each kernel that is in an object; "" where none is.
std::string MlfObjectCalls(const MlfRequest& request, const MlfNames& names);

// The type in which kernels read a literal; u8 where nothing but a copy does.
runtime::DType LiteralType(const runtime::ExecutionPlan& plan, const MlfNames& names, size_t literal);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MLF_ENTRY_H_
