// A scatter_nd whose indices count through a box is an assignment to a slice, as exporters write x[:, 1:] = y: the box
// between what of x is around it. No index is read, and where the box is all of x, nothing of x is.
//
//   %1 = expand(i64[2, 1]{0, 1}, shape=[2, 7])
//   %2 = reshape(%1, shape=[2, 7, 1])
//   %3 = expand(i64[7]{1, 2, 3, ...}, shape=[2, 7])        %1 = slice(%x, begins=[0, 0], ends=[2, 1])
//   %4 = reshape(%3, shape=[2, 7, 1])                      %2 = concat(%1, %y, axis=1)
//   %5 = concat(%2, %4, axis=2)                  becomes
//   %6 = scatter_nd(%x: f32[2, 8], %5, %y: f32[2, 7])
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"
#include "core/passes/scalar_eval.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;
using Ints = std::vector<int64_t>;

class Recogniser : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("scatter_nd") || binding->attrs.String("reduction") != "none") return absl::nullopt;
    const Operand &x = binding->args[0], &indices = binding->args[1], &updates = binding->args[2];
    if (!x.tensor_type().is_static() || !indices.tensor_type().is_static()) return absl::nullopt;
    const Ints shape = x.tensor_type().Shape();
    Ints box = indices.tensor_type().Shape();
    const int axes = static_cast<int>(box.back());
    box.pop_back();
    // An axis of x for each axis of the box, in its order; the axes behind are taken whole.
    if (static_cast<int>(box.size()) != axes || axes == 0 || updates.tensor_type().NumElements() == 0)
      return absl::nullopt;
    Ints begins(shape.size(), 0), ends = shape;
    for (int axis = 0; axis < axes; ++axis) {
      absl::optional<int64_t> first = First(indices, box, axis);
      if (!first.has_value()) return absl::nullopt;
      if (*first < 0) *first += shape[axis];
      begins[axis] = *first;
      ends[axis] = *first + box[axis];
      if (begins[axis] < 0 || ends[axis] > shape[axis]) return absl::nullopt;  // scatter_nd says what is wrong
    }
    // From the last axis on: the box grows until it is x.
    Operand grown = updates;
    for (int axis = axes - 1; axis >= 0; --axis) {
      std::vector<Operand> parts;
      auto add_slice = [&](int64_t begin, int64_t end) -> absl::Status {
        if (begin == end) return absl::OkStatus();
        Ints from = begins, to = ends;
        from[axis] = begin;
        to[axis] = end;
        for (size_t behind = axis + 1; behind < shape.size(); ++behind) {
          from[behind] = 0;
          to[behind] = shape[behind];
        }
        INLAY_ASSIGN_OR_RETURN(Operand part, Call("slice", {x}, {{"begins", from}, {"ends", to}}));
        parts.push_back(part);
        return absl::OkStatus();
      };
      INLAY_RETURN_IF_ERROR(add_slice(0, begins[axis]));
      parts.push_back(grown);
      INLAY_RETURN_IF_ERROR(add_slice(ends[axis], shape[axis]));
      if (parts.size() == 1) continue;
      INLAY_ASSIGN_OR_RETURN(grown, Call("concat", std::move(parts), {{"axis", int64_t{axis}}}));
    }
    return {grown};
  }

 private:
  // The first index along `axis` where the indices count up by one along that axis of the box; nullopt where they
  // don't.
  absl::optional<int64_t> First(const Operand& indices, const Ints& box, int axis) const {
    Ints shape = box;
    shape.push_back(static_cast<int64_t>(box.size()));
    if (indices.is_literal()) return CountsAlong(*indices.constant, shape, axis, axis, shape.back());
    const Binding* concat = DefCall(indices, "concat");
    if (concat == nullptr || concat->attrs.Int("axis") != static_cast<int64_t>(box.size()) ||
        concat->args.size() != box.size()) {
      return absl::nullopt;
    }
    shape.back() = 1;
    Operand part = concat->args[axis];
    while (const Binding* def = Def(part)) {
      if (def->IsCall("reshape") && shape.size() > box.size() && def->args[0].tensor_type().is_static() &&
          def->args[0].tensor_type().Shape() == box) {
        shape.pop_back();
      } else if (!def->IsCall("expand")) {
        return absl::nullopt;
      }
      part = def->args[0];
    }
    return part.is_literal() ? CountsAlong(*part.constant, shape, axis, 0, 1) : absl::nullopt;
  }

  // Of the elements start, start + step, ... of a literal that is broadcast to `shape`.
  static absl::optional<int64_t> CountsAlong(const ir::Constant& literal, const Ints& shape, int axis, int64_t start,
                                             int64_t step) {
    const Ints own = literal.type.Shape();
    const int missing = static_cast<int>(shape.size() - own.size());
    auto extent = [&](int at) { return at < missing ? 1 : own[at - missing]; };
    if (missing < 0 || extent(axis) != shape[axis]) return absl::nullopt;
    int64_t inner = 1;  // elements from one index along the axis to the next
    for (int at = axis + 1; at < static_cast<int>(shape.size()); ++at) inner *= extent(at);
    absl::optional<int64_t> first;
    for (int64_t i = start; i < literal.type.NumElements(); i += step) {
      const int64_t value = Load(literal.type.dtype, literal.data, i).i - i / inner % shape[axis];
      if (first.has_value() && value != *first) return absl::nullopt;
      first = value;
    }
    return first;
  }
};

class RecogniseAssignmentPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "recognise_assignment"; }
  int min_opt_level() const override { return 1; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Recogniser().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> RecogniseAssignment() { return std::make_unique<RecogniseAssignmentPass>(); }

}  // namespace inlay::passes
