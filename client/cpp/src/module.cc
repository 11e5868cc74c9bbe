#include "inlay/module.h"

#include <unordered_set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/module_objects.h"
#include "core/base/status_macros.h"

namespace inlay {
namespace {

using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Error;

std::string FirstLine(const std::string& text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) return std::string(line);
  }
  return "an error without a text";
}

absl::Status FromError(const std::string& kind, const std::string& message) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (kind == "ValueError" || kind == "TypeError") code = absl::StatusCode::kInvalidArgument;
  if (kind == "MemoryError") code = absl::StatusCode::kResourceExhausted;
  if (kind == "KeyError") code = absl::StatusCode::kNotFound;
  return MakeError(ErrorKind::kRun, code, FirstLine(message));
}

class FunctionsObj final : public NodeObj {
 public:
  FunctionsObj(std::map<std::string, Function> functions, std::string name)
      : NodeObj("packed_function", Module::kRunnable, std::move(name)), functions_(std::move(functions)) {}
  tvm::ffi::Optional<Function> GetFunction(const tvm::ffi::String& name) final {
    const auto it = functions_.find(name);
    if (it == functions_.end()) return std::nullopt;
    return it->second;
  }
  std::string why_not_exported() const final {
    return "C++ functions live in this process alone: leave it out, and import it again after LoadLibrary";
  }

 private:
  const std::map<std::string, Function> functions_;
};

class LoadedObj final : public NodeObj {
 public:
  LoadedObj(tvm::ffi::Module library, Signature signature, std::string name)
      : NodeObj("library", Module::kRunnable, std::move(name)),
        library_(std::move(library)),
        signature_(std::move(signature)) {}
  tvm::ffi::Optional<Function> GetFunction(const tvm::ffi::String& name) final { return library_->GetFunction(name); }
  const Signature* signature() const final { return &signature_; }
  std::string why_not_exported() const final {
    return "what is loaded can't be taken apart again: give its source or object";
  }

 private:
  const tvm::ffi::Module library_;
  const Signature signature_;
};

class ServerObj final : public NodeObj {
 public:
  using NodeObj::NodeObj;
  bool is_here() const final { return false; }
};

}  // namespace

const NodeObj* AsNode(const tvm::ffi::Module& module) { return dynamic_cast<const NodeObj*>(module.operator->()); }

Module ServerModule(std::string kind, int properties, std::string name) {
  return tvm::ffi::Module(tvm::ffi::make_object<ServerObj>(std::move(kind), properties, std::move(name)));
}

Module LoadedModule(tvm::ffi::Module library, Signature signature, std::string name) {
  return tvm::ffi::Module(tvm::ffi::make_object<LoadedObj>(std::move(library), std::move(signature), std::move(name)));
}

Module FunctionModule(std::map<std::string, Function> functions, std::string name) {
  if (name.empty()) {
    name = absl::StrJoin(functions, ", ", [](std::string* out, const auto& f) { *out += f.first; });
  }
  return tvm::ffi::Module(tvm::ffi::make_object<FunctionsObj>(std::move(functions), std::move(name)));
}

std::string Module::kind() const { return get()->kind(); }
int Module::properties() const { return get()->GetPropertyMask(); }

std::string Module::name() const {
  const NodeObj* node = AsNode(*this);
  return node == nullptr ? "" : node->name();
}

std::string Module::ToString() const {
  return name().empty() ? absl::StrCat("a module of kind '", kind(), "'")
                        : absl::StrCat("the module '", name(), "' of kind '", kind(), "'");
}

std::vector<Module> Module::imported_modules() const {
  std::vector<Module> imported;
  for (const Any& any : get()->imports()) imported.emplace_back(any.cast<tvm::ffi::Module>());
  return imported;
}

absl::Status Module::ImportModule(const Module& module) {
  try {
    const_cast<tvm::ffi::ModuleObj*>(get())->ImportModule(module);
  } catch (const Error&) {  // the one thing that it refuses
    return ModuleError(absl::StrCat(ToString(), " can't import ", module.ToString(), ": that one imports it already"));
  }
  return absl::OkStatus();
}

std::vector<Module> Module::Walk() const { return Nodes({*this}); }

std::vector<Module> Nodes(const std::vector<Module>& roots) {
  std::vector<Module> found;
  std::unordered_set<const void*> seen;
  for (const Module& root : roots) {
    std::vector<Module> pending = {root};
    for (size_t i = 0; i < pending.size(); ++i) {
      if (!seen.insert(pending[i].get()).second) continue;
      found.push_back(pending[i]);
      for (const Module& imported : found.back().imported_modules()) pending.push_back(imported);
    }
  }
  return found;
}

absl::StatusOr<Function> Module::GetFunction(const std::string& name) const {
  try {
    const auto function = const_cast<tvm::ffi::ModuleObj*>(get())->GetFunction(name, /*query_imports=*/true);
    if (function.has_value()) return *function;
  } catch (const Error& error) {
    return FromError(error.kind(), error.message());
  }
  std::vector<std::string> stuck;
  for (const Module& node : Walk()) {
    if (!node.is_runnable()) stuck.push_back(node.ToString());
  }
  return MakeError(ErrorKind::kModule, absl::StatusCode::kNotFound,
                   absl::StrCat("the module has no function '", name, "'; a compiled model's is 'main'",
                                stuck.empty() ? ""
                                              : absl::StrCat(" (", absl::StrJoin(stuck, ", "),
                                                             " can't run as it is: Executable::Jit makes it)")));
}

Function Module::operator[](const std::string& name) const {
  absl::StatusOr<Function> function = GetFunction(name);
  if (!function.ok()) throw Error("KeyError", std::string(function.status().message()), "");
  return *std::move(function);
}

absl::StatusOr<Signature> Module::signature() const {
  for (const Module& node : Walk()) {
    const NodeObj* own = AsNode(node);
    if (own != nullptr && own->signature() != nullptr) return *own->signature();
  }
  return ModuleError(absl::StrCat(ToString(), " is no compiled model that can be run"));
}

absl::StatusOr<Any> Call(const Function& function, const std::vector<Any>& args) {
  const std::vector<AnyView> views(args.begin(), args.end());
  Any result;
  try {
    function.CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  } catch (const Error& error) {
    return FromError(error.kind(), error.message());
  } catch (const std::exception& error) {
    return MakeError(ErrorKind::kRun, absl::StatusCode::kInternal, FirstLine(error.what()));
  }
  return result;
}

absl::StatusOr<std::vector<Tensor>> Module::Run(const std::vector<Tensor>& inputs) const {
  INLAY_ASSIGN_OR_RETURN(const Function main, GetFunction("main"));
  absl::StatusOr<Any> result = Call(main, {inputs.begin(), inputs.end()});
  if (!result.ok()) {
    return MakeError(KindOf(result.status()), result.status().code(), absl::StrCat("main: ", result.status().message()),
                     ServerText(result.status()));
  }
  std::vector<Tensor> outputs;
  if (auto one = result->try_cast<Tensor>()) {
    outputs.push_back(*one);
  } else if (auto several = result->try_cast<Array<Tensor>>()) {
    outputs.assign(several->begin(), several->end());
  } else {
    return MakeError(ErrorKind::kRun, absl::StatusCode::kInternal,
                     absl::StrCat("main: gave ", result->GetTypeKey(), ", not tensors"));
  }
  return outputs;
}

absl::StatusOr<std::map<std::string, Tensor>> Module::Run(const std::map<std::string, Tensor>& inputs) const {
  INLAY_ASSIGN_OR_RETURN(const Signature signature, this->signature());
  std::vector<Tensor> ordered;
  std::vector<std::string> names;
  for (const TensorSpec& spec : signature.inputs) {
    names.push_back(spec.name);
    const auto it = inputs.find(spec.name);
    if (it != inputs.end()) ordered.push_back(it->second);
  }
  if (ordered.size() != names.size() || inputs.size() != names.size()) {
    std::vector<std::string> given;
    for (const auto& input : inputs) given.push_back(input.first);
    return MakeError(ErrorKind::kRun, absl::StatusCode::kInvalidArgument,
                     absl::StrCat("main takes the inputs ", absl::StrJoin(names, ", "), ", not ",
                                  given.empty() ? "none" : absl::StrJoin(given, ", ")));
  }
  INLAY_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, Run(ordered));
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < outputs.size() && i < signature.outputs.size(); ++i) {
    named.emplace(signature.outputs[i].name, outputs[i]);
  }
  return named;
}

absl::Status RegisterFunc(const std::string& name, Function function, bool override) {
  try {
    Function::SetGlobal(name, std::move(function), override);
  } catch (const Error& error) {
    return MakeError(ErrorKind::kModule, absl::StatusCode::kAlreadyExists,
                     absl::StrCat("RegisterFunc: ", FirstLine(error.message())));
  }
  return absl::OkStatus();
}

}  // namespace inlay
