// The modules that inlay itself makes: tvm-ffi's ModuleObj with a kind, a name and properties.
#ifndef INLAY_CLIENT_CPP_SRC_MODULE_OBJECTS_H_
#define INLAY_CLIENT_CPP_SRC_MODULE_OBJECTS_H_

#include <tvm/ffi/extra/module.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "inlay/module.h"
#include "inlay/tensor.h"

namespace inlay {

class NodeObj : public tvm::ffi::ModuleObj {
 public:
  NodeObj(std::string kind, int properties, std::string name)
      : kind_(std::move(kind)), properties_(properties), name_(std::move(name)) {}
  const char* kind() const final { return kind_.c_str(); }
  int GetPropertyMask() const final { return properties_; }
  tvm::ffi::Optional<Function> GetFunction(const tvm::ffi::String&) override { return std::nullopt; }
  const std::string& name() const { return name_; }

  // A compiled model's inputs and outputs; nullptr: it is none.
  virtual const Signature* signature() const { return nullptr; }
  // False: what it stands for is on the server; Executable::Jit makes it runnable here.
  virtual bool is_here() const { return true; }
  // Why it can't be exported and what to do instead.
  virtual std::string why_not_exported() const { return "it lives in this process alone: leave it out"; }

 private:
  const std::string kind_;
  const int properties_;
  const std::string name_;
};

// nullptr: not one of inlay's.
const NodeObj* AsNode(const tvm::ffi::Module& module);

// What lies on the server, which links or loads it: what a backend made, or the executor.
Module ServerModule(std::string kind, int properties, std::string name);

// A library that tvm-ffi has loaded, with the model's signature. It is runnable only: what is loaded can't be taken
// apart.
Module LoadedModule(tvm::ffi::Module library, Signature signature, std::string name);

struct Addon {
  std::string name, data;  // a relocatable object
};

// All modules of the trees, each once.
std::vector<Module> Nodes(const std::vector<Module>& roots);

// The objects to link into a library for `modules` (not what they import); sources are compiled here.
// FAILED_PRECONDITION names the first that can't be in a library.
absl::StatusOr<std::vector<Addon>> AddonsOf(const std::vector<Module>& modules, const Fcompile& fcompile,
                                            const std::vector<std::string>& options);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_MODULE_OBJECTS_H_
