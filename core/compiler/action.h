// From a partition to its CompileAction and the action's key.
#ifndef INLAY_CORE_COMPILER_ACTION_H_
#define INLAY_CORE_COMPILER_ACTION_H_

#include <map>
#include <string>

#include "core/base/digest.h"
#include "core/ir/ir_module.h"
#include "core/target/compilation_config.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

// A key and what it was made of, so that a miss can be explained by the component that was new.
struct ActionKey {
  Digest digest;
  // "structure", "backend_version", "target", "codegen_target", "abi", each as hex or text.
  std::map<std::string, std::string> components;
};

struct Action {
  std::string name;  // of the partition
  proto::CompileAction action;
  ActionKey key;
};

// `function`: a partition of `module` (core/README.md, point 2).
Action MakeAction(const ir::IRModule& module, const std::string& function, const std::string& backend_version);

// Of a plan's compiled entry (core/artifact/aot_entry.h); its name is the entry's symbol.
Action MakeEntryAction(const std::string& canonical_plan, const target::Target& target,
                       const std::string& backend_version);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_ACTION_H_
