// Module: what a build consists of and what runs: tvm-ffi's modules (tree, kind, property mask, imports), with inlay's
// kinds and errors that say what to do.
//
// | kind | properties | what it is |
// | "llvm" | runnable, compilation-exportable | code that inlay generated, on the server |
// | "static_library" | compilation-exportable | objects: of a backend on the server, or yours (ObjectModule) |
// | "c", "cc", "cuda" | compilation-exportable | a source of yours (SourceModule) |
// | "graph", "aot", "vm" | binary-serializable, runnable | what calls the rest in order |
// | "library" | runnable | an exported library, loaded (LoadLibrary, Executable::Jit) |
// | "remote" | runnable | a model loaded into the daemon (Executable::RemoteJit) |
// | "packed_function" | runnable | C++ functions of this process (FunctionModule) |
//
// What a module can do is asked of its properties and tvm-ffi's methods (GetWriteFormats, WriteToFile), not of its
// kind: a tvm::ffi::Module of another library's that writes objects ("o") or sources ("c", "cc", "cu") is exported
// alike.
//
// Reference-counted; functions of runnable modules may be called from any thread, trees are built in one.
#ifndef INLAY_MODULE_H_
#define INLAY_MODULE_H_

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inlay/tensor.h"

namespace inlay {

using Function = tvm::ffi::Function;
using Any = tvm::ffi::Any;

class Module : public tvm::ffi::Module {
 public:
  // The bits are tvm-ffi's: kBinarySerializable, kRunnable, kCompilationExportable.
  Module(tvm::ffi::Module module) : tvm::ffi::Module(std::move(module)) {}  // NOLINT

  std::string kind() const;
  std::string name() const;  // for messages; "" where it has none
  int properties() const;
  bool is_runnable() const { return (properties() & kRunnable) != 0; }
  // Whether it can be part of an exported library: as code that is linked, or as bytes.
  bool is_exportable() const { return (properties() & (kCompilationExportable | kBinarySerializable)) != 0; }

  std::vector<Module> imported_modules() const;
  // FAILED_PRECONDITION where that would make a circle.
  absl::Status ImportModule(const Module& module);
  // This module and all that it imports, each once, importers first.
  std::vector<Module> Walk() const;

  // The function of that name of this module, else of the first import that has it. NOT_FOUND.
  absl::StatusOr<Function> GetFunction(const std::string& name) const;
  // The same; throws tvm::ffi::Error of kind KeyError, as the function itself throws where it fails.
  Function operator[](const std::string& name) const;

  // Of a compiled model: the inputs and outputs of "main". FAILED_PRECONDITION: it is something else.
  absl::StatusOr<Signature> signature() const;
  // Runs a compiled model. INVALID_ARGUMENT: a wrong number of inputs, a wrong dtype or shape.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs) const;
  // By the inputs' and outputs' names.
  absl::StatusOr<std::map<std::string, Tensor>> Run(const std::map<std::string, Tensor>& inputs) const;

  std::string ToString() const;  // "the module 'mine' of kind 'c'"
};

// Calls a function; what it throws comes back as a Status: ValueError and TypeError as INVALID_ARGUMENT, MemoryError as
// RESOURCE_EXHAUSTED, others as INTERNAL.
absl::StatusOr<Any> Call(const Function& function, const std::vector<Any>& args);

// C++ functions of this process: FunctionModule({{"double", Function::FromTyped([](int x) { return 2 * x; })}}).
Module FunctionModule(std::map<std::string, Function> functions, std::string name = "");

// A source of your own, of kind "c", "cc" (C++) or "cuda". A function of it is found by name in the library where the
// source defines it with tvm-ffi's macro TVM_FFI_DLL_EXPORT_TYPED_FUNC, or in C as __tvm_ffi_<name>. INVALID_ARGUMENT:
// another kind.
absl::StatusOr<Module> SourceModule(std::string source, const std::string& kind = "c", std::string name = "");

// A relocatable object of your own (position independent, for the device's CPU): its bytes, or its file.
Module ObjectModule(std::string data, std::string name = "object");
absl::StatusOr<Module> LoadObjectModule(const std::string& path);

// Makes a relocatable object `output` of one source; throws nothing.
using CompileFunction = std::function<absl::Status(const std::string& output, const std::string& source,
                                                   const std::vector<std::string>& options)>;

// How sources among the modules are compiled: a compiler's name or path ("gcc-12", "nvcc"; default: the kind's own), or
// a function.
struct Fcompile {
  std::string compiler;
  CompileFunction function;
  Fcompile() = default;
  Fcompile(const char* compiler) : compiler(compiler) {}                 // NOLINT
  Fcompile(std::string compiler) : compiler(std::move(compiler)) {}      // NOLINT
  Fcompile(CompileFunction function) : function(std::move(function)) {}  // NOLINT
};

// The object that a source becomes. FAILED_PRECONDITION: what the compiler said, or which compiler is missing.
absl::StatusOr<Module> CompileSource(const Module& source, const Fcompile& fcompile = {},
                                     const std::vector<std::string>& options = {});

// Registers a function of this process that compiled models call by name (call_packed, executor vm), in tvm-ffi's
// global registry. It gets a Tensor for each argument (its own) and returns a Tensor, or an Array of as many as the
// model says, of exactly those dtypes and shapes; what it throws fails the run. ALREADY_EXISTS where the name is taken
// and not `override`.
absl::Status RegisterFunc(const std::string& name, Function function, bool override = false);

}  // namespace inlay

#endif  // INLAY_MODULE_H_
