// ValueTable: which value of the Description holds which operand of the function, row-major or with the channels last;
// adds the transposes between the two where a step wants the other one.
//
// Used by one thread, while one function is lowered.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_VALUES_H_
#define INLAY_CORE_BACKENDS_XNNPACK_VALUES_H_

#include <map>
#include <set>
#include <string>

#include "core/backends/xnnpack/description.h"
#include "core/ir/ir_module.h"

namespace inlay::xnnpack {

enum class Layout { kRowMajor, kChannelsLast };

int64_t NumElements(const Dims& dims);
// Ones in front, up to `rank`.
Dims AlignRank(Dims dims, size_t rank);
// The dims of [N,C,s...] in the order in which they lie.
Dims InOrder(const Dims& dims, Layout layout);

class ValueTable {
 public:
  // Both outlive the table.
  ValueTable(Description* description, std::string* literals) : description_(description), literals_(literals) {}

  void AddParam(const ir::VarPtr& param, bool constant, Layout layout);
  // A literal of one element.
  int AddScalar(float value);

  // The value that holds `operand` in a layout; a transpose is added where there is none yet.
  int Get(const ir::Operand& operand, Layout layout) { return Get(operand, layout, operand.tensor_type().Shape()); }
  // The same, of an operand seen with ones in front of its dims.
  int Get(const ir::Operand& operand, Layout layout, const Dims& dims);
  // Whether that costs no transpose.
  bool Has(const ir::Operand& operand, Layout layout) const;

  // Appends a step whose result is new and holds `var` in the layout.
  int AddStep(Step step, const ir::VarPtr& var, Layout layout);
  // Appends a step whose result has no name.
  int AddStep(Step step, int64_t elements);
  // `var` has the same bytes as the value, in the layout.
  void Bind(const ir::VarPtr& var, int value, Layout layout);

  // The value, or a copy of it, for an operator that reads rows of so many elements by whole vectors: what belongs to a
  // caller may end where its page ends, so that nothing beyond may be read.
  int Readable(int value, int64_t row);
  // The value that becomes output `index`.
  void AddOutput(const ir::Operand& result, Layout layout, int index);

  bool IsConstant(int value) const { return description_->values[value].constant; }

 private:
  struct Held {
    int row_major = -1, channels_last = -1;
    int& in(Layout layout) { return layout == Layout::kRowMajor ? row_major : channels_last; }
  };

  static const void* KeyOf(const ir::Operand& operand);
  int AddValue(int64_t elements);
  int AddLiteral(const std::string& data);
  int Transposed(int value, Layout to, const Dims& dims);
  int Copy(int value);

  Description* description_;
  std::string* literals_;
  std::map<const void*, Held> held_;  // looked up only: order by address does not show
  std::map<int, int> copies_;
  std::set<int> read_beyond_;  // values that some operator reads beyond their end
};

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_VALUES_H_
