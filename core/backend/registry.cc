#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"

namespace inlay::backend {

const std::vector<target::AttrSpec>& Backend::attrs() const {
  static const auto* none = new std::vector<target::AttrSpec>;
  return *none;
}

absl::Status Backend::CheckAttrs(const target::Target& codegen_target) const {
  return target::CheckAttrs(codegen_target.attrs, attrs(), absl::StrCat("the codegen target ", name()));
}
namespace {

// Runs before main(): two backends of one name are a mistake of the build, not of a user.
template <typename Map, typename Value>
void RegisterOnce(Map* map, std::unique_ptr<Value> value) {
  std::string name = value->name();
  if (!map->emplace(name, std::move(value)).second) {
    std::fprintf(stderr, "inlay: backend '%s' is registered twice\n", name.c_str());
    std::abort();
  }
}

template <typename Value, typename Map>
const Value* FindIn(const Map& map, absl::string_view name) {
  auto found = map.find(name);
  return found == map.end() ? nullptr : found->second.get();
}

template <typename Value, typename Map>
std::vector<const Value*> ValuesOf(const Map& map) {
  std::vector<const Value*> values;
  for (const auto& [name, value] : map) values.push_back(value.get());
  return values;
}

}  // namespace

BackendRegistry& BackendRegistry::Global() {
  static auto* registry = new BackendRegistry;
  return *registry;
}
void BackendRegistry::Register(std::unique_ptr<Backend> backend) { RegisterOnce(&backends_, std::move(backend)); }
const Backend* BackendRegistry::Find(absl::string_view name) const { return FindIn<Backend>(backends_, name); }
std::vector<const Backend*> BackendRegistry::All() const { return ValuesOf<Backend>(backends_); }

CodegenRegistry& CodegenRegistry::Global() {
  static auto* registry = new CodegenRegistry;
  return *registry;
}
void CodegenRegistry::Register(std::unique_ptr<BackendCodegen> codegen) {
  RegisterOnce(&codegens_, std::move(codegen));
}
const BackendCodegen* CodegenRegistry::Find(absl::string_view name) const {
  return FindIn<BackendCodegen>(codegens_, name);
}
std::vector<const BackendCodegen*> CodegenRegistry::All() const { return ValuesOf<BackendCodegen>(codegens_); }

}  // namespace inlay::backend
