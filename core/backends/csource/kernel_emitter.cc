#include "core/backends/csource/kernel_emitter.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/backends/csource/op.h"
#include "core/ir/literal.h"

namespace inlay::csource {
namespace {

Expr Offset(const Shape& shape, const Index& at) {
  const Shape strides = StridesOf(shape);
  Expr offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) offset = offset + at[i] * Expr(strides[i]);
  return offset;
}

std::string KeyOf(const Tensor& t, const Index& at) {
  std::string key = absl::StrCat(t.id);
  for (const Expr& e : at) absl::StrAppend(&key, "|", e.text);
  return key;
}

// The index into an argument of `shape` that broadcasts to `at`.
Index BroadcastIndex(const Shape& shape, const Index& at) {
  Index index(at.end() - static_cast<int64_t>(shape.size()), at.end());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) index[i] = 0;
  }
  return index;
}

// A name or a number.
bool IsAtom(const Expr& e) { return e.level == 0 && e.text.find_first_of("([ ") == std::string::npos; }

// One index for all of the group's dimensions: row-major, so the last one may run over the extents of them all.
void SetIndex(const DimGroup& group, const Expr& i, Index* at) {
  if (group.begin == group.end) return;
  for (int d = group.begin; d < group.end; ++d) (*at)[d] = 0;
  (*at)[group.end - 1] = i;
}

}  // namespace

namespace {

bool InName(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// The name that a line "const T name = ..." declares; empty: another line. Names are unique in a kernel.
std::string Declared(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  const size_t equals = line.find(" = ");
  if (!absl::StartsWith(line, "const ") || equals == line.npos || line.substr(0, equals).find('*') != line.npos)
    return "";
  return std::string(line.substr(line.rfind(' ', equals - 1) + 1, equals - line.rfind(' ', equals - 1) - 1));
}

std::unordered_map<std::string, int> UsesOfNames(const std::vector<absl::string_view>& lines) {
  std::unordered_map<std::string, int> uses;
  for (absl::string_view line : lines) {
    for (size_t i = 0; i < line.size();) {
      size_t end = i;
      while (end < line.size() && InName(line[end])) ++end;
      if (end > i) ++uses[std::string(line.substr(i, end - i))];
      i = std::max(end, i + 1);
    }
  }
  return uses;
}

// Operators name what they may need; compilers warn of what is then not needed.
std::string WithoutUnused(const std::string& text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (bool changed = true; changed;) {
    std::unordered_map<std::string, int> uses = UsesOfNames(lines);
    const size_t before = lines.size();
    lines.erase(std::remove_if(lines.begin(), lines.end(),
                               [&](absl::string_view line) {
                                 const std::string name = Declared(line);
                                 return !name.empty() && uses[name] == 1;
                               }),
                lines.end());
    changed = lines.size() != before;
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace

std::vector<DimGroup> Singles(const Shape& shape, int begin, int end) {
  std::vector<DimGroup> groups;
  for (int d = begin; d < end; ++d) groups.push_back({d, d + 1, shape[d]});
  return groups;
}

int64_t KernelEmitter::Lanes(ir::DType dtype) const {
  if (plain()) return 1;
  const int64_t bytes = target_.HasFeature("avx512f") ? 64 : target_.HasFeature("avx2") ? 32 : 16;
  return bytes / ir::ByteSize(ComputeDType(dtype));
}

std::string KernelEmitter::Fresh(const std::string& hint) { return absl::StrCat(hint, next_name_++); }

Expr KernelEmitter::Let(absl::string_view c_type, const Expr& value) {
  if (value.number || IsAtom(value)) return value;
  const std::string name = Fresh(c_type == kIndexType ? "i" : "v");
  c().Line("const ", c_type, " ", name, " = ", value.text, ";");
  return Expr::Name(name);
}

void KernelEmitter::Scope(const std::string& header, const std::function<void()>& body) {
  values_.emplace_back();
  c().Block(header, body);
  values_.pop_back();
}

void KernelEmitter::For(const Expr& begin, const Expr& end, const Body& body, int64_t step, bool simd) {
  if (begin.number && end.number && *end.number == *begin.number + 1) {
    Scope("", [&] { body(begin); });
    return;
  }
  const std::string i = Fresh("i");
  if (simd && !plain()) c().Line("#pragma omp simd");
  const std::string next = step == 1 ? absl::StrCat("++", i) : absl::StrCat(i, " += ", step);
  Scope(absl::StrCat("for (", kIndexType, " ", i, " = ", begin.text, "; ", i, " < ", end.text, "; ", next, ")"),
        [&] { body(Expr::Name(i)); });
}

void KernelEmitter::Units(int64_t units, double work_each, const Body& body) {
  result_.units = units;
  result_.work = work_each * static_cast<double>(units);
  For(Expr::Name("begin"), Expr::Name("end"), body);
}

void KernelEmitter::Nest(const std::vector<DimGroup>& groups, Index* at, bool simd, const std::function<void()>& body,
                         size_t first) {
  if (first == groups.size()) return body();
  const DimGroup& group = groups[first];
  For(
      0, group.extent,
      [&](const Expr& i) {
        SetIndex(group, i, at);
        Nest(groups, at, simd, body, first + 1);
      },
      1, simd && first + 1 == groups.size());
}

void KernelEmitter::Unravel(const Expr& unit, const std::vector<DimGroup>& groups, Index* at) {
  int64_t stride = 1;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    Expr i = unit / Expr(stride);
    if (group + 1 != groups.rend()) i = i % Expr(group->extent);
    SetIndex(*group, group->extent == 1 ? Expr(0) : LetIndex(i), at);
    stride *= group->extent;
  }
}

Expr KernelEmitter::Scratch(absl::string_view c_type, int64_t bytes) {
  const std::string name = Fresh("scratch_");
  c().Line(c_type, " *restrict ", name, " = (", c_type, " *)(scratch + ", result_.scratch_bytes, ");");
  result_.scratch_bytes += (bytes + 63) / 64 * 64;
  return Expr::Name(name);
}

Expr KernelEmitter::Array(const std::string& hint, ir::DType dtype, int64_t elements) {
  const absl::string_view type = StorageType(dtype);
  if (plain()) return Scratch(type, elements * ir::ByteSize(dtype));
  const Expr name = Expr::Name(Fresh(hint));
  c().Line(type, " ", name.text, "[", elements, "];");
  return name;
}

Expr KernelEmitter::Pointer(const Tensor& t) {
  const Tensor& base = *t.Base();
  const bool written = std::find(kernel_.writes.begin(), kernel_.writes.end(), &base) != kernel_.writes.end();
  const std::string name = absl::StrCat(base.param >= 0           ? "in"
                                        : base.literal != nullptr ? "c"
                                                                  : "t",
                                        base.param >= 0 ? base.param : base.id);
  const absl::string_view type = StorageType(base.dtype);
  if (base.literal != nullptr) {
    result_.literals.insert(&base);  // an array of the file
  } else {
    pointers_.emplace(name, absl::StrCat(written ? "" : "const ", type, " *restrict ", name, " = (",
                                         written ? "" : "const ", type, " *)", locate_(base), ";"));
  }
  return Expr::Name(name);
}

Expr KernelEmitter::Load(const Tensor& t, const Index& at) {
  const Expr element = At(Pointer(t), Offset(t.shape, at));
  if (t.dtype == ir::DType::kF16) return Call("inlay_load_f16", {element});
  if (t.dtype == ir::DType::kBF16) return Call("inlay_load_bf16", {element});
  return element;
}

void KernelEmitter::StoreAt(const Tensor& t, const Index& at, const Expr& value) {
  const Expr element = At(Pointer(t), Offset(t.shape, at));
  Expr stored = value;
  // A double goes to f16 in one step; casts to them compute in float, so it is one of these two.
  if (t.dtype == ir::DType::kF16) stored = Call("inlay_store_f16", {value});
  if (t.dtype == ir::DType::kBF16) stored = Call("inlay_store_bf16", {value});
  c().Line(element.text, " = ", stored.text, ";");
}

Expr KernelEmitter::Value(const Tensor& t, const Index& at) {
  if (&t == provided_) return provided_value_;
  const std::string key = KeyOf(t, at);
  for (const auto& scope : values_) {
    auto found = scope.find(key);
    if (found != scope.end()) return found->second;
  }
  Expr value;
  if (t.literal != nullptr && t.size() == 1) {
    const std::string& data = t.literal->data;
    return ir::IsFloat(t.dtype) ? Number(t.dtype, ir::ElementAsDouble(t.dtype, data, 0))
                                : Integer(t.dtype, ir::ElementAsInt(t.dtype, data, 0));
  }
  if (t.Base()->inlined) {
    const Node& node = *t.producer;
    const int output = static_cast<int>(std::find(node.outputs.begin(), node.outputs.end(), &t) - node.outputs.begin());
    value = FindOp(node.op)->element(*this, node, output, at);
  } else {
    value = Load(t, at);
  }
  value = Let(ComputeType(t.dtype), value);
  values_.back()[key] = value;
  return value;
}

Expr KernelEmitter::BroadcastValue(const Tensor& t, const Index& at) { return Value(t, BroadcastIndex(t.shape, at)); }

void KernelEmitter::Store(const Tensor& out, const Index& at, const Expr& value) {
  if (!has_tail()) return StoreAt(out, at, value);
  provided_ = &out;
  provided_value_ = Let(ComputeType(out.dtype), value);
  const Tensor& root = *kernel_.tail;
  StoreAt(root, at, FindOp(root.producer->op)->element(*this, *root.producer, 0, at));
  provided_ = nullptr;
}

bool KernelEmitter::CanMerge(const Tensor& t, const Shape& shape, int begin, int end) const {
  const int rank = static_cast<int>(shape.size());
  if (t.Base()->inlined && !(kernel_.tail != nullptr && t.producer == kernel_.node)) {
    if (!FindOp(t.producer->op)->pointwise) return false;
    return std::all_of(t.producer->inputs.begin(), t.producer->inputs.end(),
                       [&](const Tensor* in) { return CanMerge(*in, shape, begin, end); });
  }
  // Memory: either all of these dimensions are there, or none of them is.
  bool full = true, none = true;
  for (int d = begin; d < end; ++d) {
    const int own = d - (rank - t.rank());
    const int64_t extent = own < 0 ? 1 : t.shape[own];
    full &= extent == shape[d];
    none &= extent == 1;
  }
  return full || none;
}

std::vector<DimGroup> KernelEmitter::Groups(const std::vector<const Tensor*>& values, const Shape& shape, int begin,
                                            int end) const {
  std::vector<DimGroup> groups;
  for (int d = begin; d < end; ++d) {
    const bool merge = !groups.empty() && std::all_of(values.begin(), values.end(), [&](const Tensor* t) {
      return CanMerge(*t, shape, groups.back().begin, d + 1);
    });
    if (!merge) groups.push_back({d, d, 1});
    groups.back().end = d + 1;
    groups.back().extent *= shape[d];
  }
  // The index stands at a dimension that is there: at one of extent 1 it would be taken for a broadcast one.
  for (DimGroup& group : groups) {
    while (group.end > group.begin + 1 && shape[group.end - 1] == 1) --group.end;
  }
  if (groups.empty()) groups.push_back({begin, begin, 1});
  return groups;
}

// An output of an element function: a loop over its elements.
void KernelEmitter::EmitLoop() {
  const Node& node = *kernel_.node;
  const Tensor& out = node.out(kernel_.output);
  const Op& op = *FindOp(node.op);
  std::vector<const Tensor*> values;
  if (op.pointwise) values.assign(node.inputs.begin(), node.inputs.end());
  std::vector<DimGroup> groups;
  if (op.pointwise) {
    groups = Groups(values, out.shape, 0, out.rank());
  } else {
    groups = Singles(out.shape, 0, out.rank());
  }
  while (!groups.empty() && groups.back().extent == 1) groups.pop_back();
  const int cost = std::max(op.cost, 1);
  Index at(out.rank(), Expr(0));
  auto store = [&] { StoreAt(out, at, op.element(*this, node, kernel_.output, at)); };
  if (groups.size() <= 1) {
    const DimGroup group = groups.empty() ? DimGroup{0, 0, 1} : groups[0];
    result_.units = group.extent;
    result_.work = static_cast<double>(group.extent) * cost;
    For(
        Expr::Name("begin"), Expr::Name("end"),
        [&](const Expr& i) {
          if (group.end > group.begin) at[group.end - 1] = i;
          store();
        },
        1, true);
    return;
  }
  const DimGroup inner = groups.back();
  groups.pop_back();
  int64_t units = 1;
  for (const DimGroup& group : groups) units *= group.extent;
  Units(units, static_cast<double>(inner.extent) * cost, [&](const Expr& unit) {
    Unravel(unit, groups, &at);
    Nest({inner}, &at, true, store);
  });
}

// Each tensor as pointer, extents, rank: the inputs, then the outputs.
void KernelEmitter::EmitUserCall(const std::string& function) {
  std::vector<Tensor*> tensors = kernel_.node->inputs;
  tensors.insert(tensors.end(), kernel_.node->outputs.begin(), kernel_.node->outputs.end());
  std::vector<std::string> args;
  for (const Tensor* t : tensors) {
    const std::string dims = Fresh("dims");
    c().Line("static const int64_t ", dims, "[] = {", t->rank() == 0 ? "1" : absl::StrJoin(t->shape, ", "), "};");
    args.push_back(absl::StrCat(Pointer(*t).text, ", ", dims, ", ", t->rank()));
  }
  If(Expr::Name("begin < end"), [&] { c().Line(function, "(", absl::StrJoin(args, ", "), ");"); });
}

EmittedKernel KernelEmitter::Emit(const std::string& user_function) {
  Writer body(1);
  writer_ = &body;
  if (kernel_.node->user_kernel != nullptr) {
    EmitUserCall(user_function);
  } else if (FindOp(kernel_.node->op)->element) {
    EmitLoop();
  } else {
    FindOp(kernel_.node->op)->kernel(*this, *kernel_.node);
  }
  Writer function;
  // Workspace and scratch of plain C are passed as parts of one memory.
  const char* restrict_ = plain() ? "" : "restrict ";
  function.Line("static void ", name_, "(void *const *", restrict_, "args, char *", restrict_, "workspace, char *",
                restrict_, "scratch, ", kIndexType, " begin, ", kIndexType, " end) {");
  const std::string used = WithoutUnused(body.text());
  const auto uses = UsesOfNames({used});
  for (const auto& [name, declaration] : pointers_) {
    if (uses.count(name) > 0) function.Line("  ", declaration);
  }
  function.Line("  (void)args, (void)workspace, (void)scratch;");
  function.Append(used);
  function.Line("}");
  result_.text = function.text();
  return result_;
}

}  // namespace inlay::csource
