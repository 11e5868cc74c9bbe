#include "core/ir/updates.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace inlay::ir {

absl::StatusOr<std::vector<int64_t>> UpdatedInputs(const Function& main) {
  if (!main.attrs.Has(kUpdates)) return std::vector<int64_t>();
  const std::vector<Operand>& results = main.body.results;
  const auto* ints = std::get_if<std::vector<int64_t>>(&main.attrs.values().find(kUpdates)->second);
  std::vector<int64_t> updates = ints != nullptr ? *ints : std::vector<int64_t>();
  auto bad = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("main's attribute '", kUpdates, "' ", what...));
  };
  if (ints == nullptr || updates.size() != results.size()) {
    return bad("must be ", results.size(), " ints, one a result (the input that it updates, or -1)");
  }
  const auto num_inputs = static_cast<int64_t>(main.params.size()) - main.attrs.IntOr("num_lifted_params", 0);
  std::set<int64_t> seen;
  for (size_t i = 0; i < updates.size(); ++i) {
    const int64_t input = updates[i];
    if (input == -1) continue;
    if (input < 0 || input >= num_inputs) {
      return bad("names input ", input, " for result ", i, "; there are ", num_inputs);
    }
    const Var& var = *main.params[input];
    if (!seen.insert(input).second) return bad("names input ", input, " '", var.name, "' twice");
    if (!var.type.is_tensor() || !(results[i].type() == var.type)) {
      return bad("says that result ", i, ", ", results[i].type().ToString(), ", is the new value of input ", input,
                 " '", var.name, "', which is ", var.type.ToString());
    }
  }
  return updates;
}

}  // namespace inlay::ir
