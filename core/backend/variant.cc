#include "core/backend/variant.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/target/compilation_config.h"

namespace inlay::backend {
namespace {

class VariantBackend : public Backend {
 public:
  VariantBackend(const Backend* backend, int variant)
      : backend_(*backend), name_(target::VariantName(backend->name(), variant)) {}

  std::string name() const override { return name_; }
  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    return backend_.CheckTarget(target, codegen_target);
  }
  const std::vector<PatternRule>& rules() const override { return backend_.rules(); }
  std::vector<PatternRule> ConfiguredRules(const target::Target& target,
                                           const target::Target& codegen_target) const override {
    return backend_.ConfiguredRules(target, codegen_target);
  }
  bool merges_regions() const override { return backend_.merges_regions(); }
  bool fuses_by_kind() const override { return backend_.fuses_by_kind(); }
  bool is_hidden(const target::Target& device) const override { return backend_.is_hidden(device); }
  Tolerance tolerance(const target::Target& codegen_target) const override {
    return backend_.tolerance(codegen_target);
  }
  ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target& target) const override {
    return backend_.PrefersChannelsLast(partition, target);
  }
  double TransitionMicros(const ir::TensorType& tensor, const target::Target& target) const override {
    return backend_.TransitionMicros(tensor, target);
  }
  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    return backend_.EstimateMicros(partition, target);
  }

 private:
  const Backend& backend_;
  const std::string name_;
};

class VariantTable {
 public:
  const Backend* Get(const Backend* backend, int variant) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<Backend>& found = variants_[{backend, variant}];
    if (found == nullptr) found = std::make_unique<VariantBackend>(backend, variant);
    return found.get();
  }

 private:
  absl::Mutex mutex_;
  std::map<std::pair<const Backend*, int>, std::unique_ptr<Backend>> variants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const Backend* Variant(const Backend* backend, int variant) {
  static auto* table = new VariantTable;
  return variant == 1 ? backend : table->Get(backend, variant);
}

}  // namespace inlay::backend
