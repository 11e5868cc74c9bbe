#include "core/backends/xnnpack/values.h"

#include <functional>
#include <numeric>
#include <utility>

namespace inlay::xnnpack {
namespace {

int64_t Pixels(const Dims& dims) {
  return std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

// Whether both layouts put every element at the same place.
bool SameBytes(const Dims& dims) { return dims.size() < 3 || dims[1] == 1 || Pixels(dims) == 1; }

Step TransposeStep(int value, int64_t batch, int64_t rows, int64_t columns) {
  Step step;
  step.op = "transpose";
  step.args = {value};
  step.batch = batch;
  step.rows = rows;
  step.channels = columns;
  return step;
}

}  // namespace

int64_t NumElements(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

Dims AlignRank(Dims dims, size_t rank) {
  if (dims.size() < rank) dims.insert(dims.begin(), rank - dims.size(), 1);
  return dims;
}

Dims InOrder(const Dims& dims, Layout layout) {
  if (layout == Layout::kRowMajor || dims.size() < 3) return dims;
  Dims last = dims;
  last.erase(last.begin() + 1);
  last.push_back(dims[1]);
  return last;
}

const void* ValueTable::KeyOf(const ir::Operand& operand) {
  return operand.is_var() ? static_cast<const void*>(operand.var.get()) : operand.constant.get();
}

int ValueTable::AddValue(int64_t elements) {
  Value value;
  value.elements = elements;
  description_->values.push_back(value);
  return static_cast<int>(description_->values.size()) - 1;
}

int ValueTable::AddLiteral(const std::string& data) {
  literals_->resize((literals_->size() + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment);
  const int value = AddValue(static_cast<int64_t>(data.size() / sizeof(float)));
  description_->values[value].constant = true;
  description_->values[value].literal_offset = static_cast<int64_t>(literals_->size());
  *literals_ += data;
  return value;
}

void ValueTable::AddParam(const ir::VarPtr& param, bool constant, Layout layout) {
  const int value = AddValue(param->type.tensor().NumElements());
  description_->values[value].constant = constant;
  Bind(param, value, layout);
}

int ValueTable::AddScalar(float value) {
  return AddLiteral(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
}

void ValueTable::Bind(const ir::VarPtr& var, int value, Layout layout) {
  Held held;
  held.in(layout) = value;
  if (SameBytes(var->type.tensor().Shape())) held.row_major = held.channels_last = value;
  held_[var.get()] = held;
}

bool ValueTable::Has(const ir::Operand& operand, Layout layout) const {
  auto found = held_.find(KeyOf(operand));
  return found != held_.end() && Held(found->second).in(layout) >= 0;
}

int ValueTable::Get(const ir::Operand& operand, Layout layout, const Dims& dims) {
  auto [found, is_new] = held_.try_emplace(KeyOf(operand));
  Held& held = found->second;
  if (is_new) held.row_major = AddLiteral(operand.constant->data);
  const Dims own = operand.tensor_type().Shape();
  if (layout == Layout::kRowMajor || dims == own) {
    if (held.in(layout) >= 0) return held.in(layout);
    const int other = layout == Layout::kRowMajor ? held.channels_last : held.row_major;
    return held.in(layout) = SameBytes(own) ? other : Transposed(other, layout, own);
  }
  const int row_major = Get(operand, Layout::kRowMajor);
  return SameBytes(dims) ? row_major : Transposed(row_major, layout, dims);
}

int ValueTable::Transposed(int value, Layout to, const Dims& dims) {
  const int64_t pixels = Pixels(dims);
  const bool last = to == Layout::kChannelsLast;
  return AddStep(TransposeStep(value, dims[0], last ? dims[1] : pixels, last ? pixels : dims[1]), NumElements(dims));
}

int ValueTable::AddStep(Step step, int64_t elements) {
  step.out = AddValue(elements);
  bool constant = true;
  for (int arg : step.args) constant &= IsConstant(arg);
  description_->values[step.out].constant = constant;
  description_->steps.push_back(std::move(step));
  return description_->steps.back().out;
}

int ValueTable::AddStep(Step step, const ir::VarPtr& var, Layout layout) {
  const int value = AddStep(std::move(step), var->type.tensor().NumElements());
  Bind(var, value, layout);
  return value;
}

int ValueTable::Copy(int value) {
  const int64_t elements = description_->values[value].elements;
  return AddStep(TransposeStep(value, 1, 1, elements), elements);
}

int ValueTable::Readable(int value, int64_t row) {
  constexpr int64_t kVector = kExtraBytes / static_cast<int64_t>(sizeof(float));
  if (row % kVector == 0 || IsConstant(value)) return value;
  if (value < description_->num_inputs) {
    auto [copy, is_new] = copies_.emplace(value, 0);
    if (is_new) copy->second = Copy(value);
    return copy->second;
  }
  read_beyond_.insert(value);
  return value;
}

void ValueTable::AddOutput(const ir::Operand& result, Layout layout, int index) {
  int value = Get(result, layout);
  const bool taken = value < description_->num_inputs || description_->values[value].output >= 0;
  if (taken || IsConstant(value) || read_beyond_.count(value) > 0) {
    value = Copy(value);
    description_->values[value].constant = false;  // written at every call
  }
  description_->values[value].output = index;
}

}  // namespace inlay::xnnpack
