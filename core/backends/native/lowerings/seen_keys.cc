#include "core/backends/native/lowerings/seen_keys.h"

#include <algorithm>
#include <map>

#include "core/ir/op_registry.h"

namespace inlay::native {
namespace {

using mlir::Value;
using Values = std::vector<Value>;

constexpr int64_t kLeastKeys = 128;
constexpr int64_t kVectorsAtOnce = 4;
// Scores of what is masked: of -Inf, or of the lowest number to which anything was added. Beside any that is not so
// low, their weights are zero.
constexpr double kMasked = -1e30;

bool IsElementwise(const std::string& op) {
  const ir::OpSchema* schema = ir::OpRegistry::Global().Find(op);
  return schema != nullptr && schema->pattern <= ir::OpPattern::kBroadcast;
}

// What scores are made of: `raw` and masks.
class Masks {
 public:
  explicit Masks(const ScoreRows& s) : s_(s) {}

  // Whether `scores` of a raw value of 0 say which keys are masked, whatever the raw values are: to a number made of
  // raw values alone, masks are added, or it is chosen by them.
  bool Decide(const Tensor& scores) const {
    if (&scores == s_.raw || scores.producer == nullptr) return false;
    const Node& n = *scores.producer;
    if (n.op == "where" && DependsOnRaw(n.in(0))) return false;
    const Tensor* from_raw = nullptr;
    if (n.op == "where" || n.op == "add") {
      for (size_t i = n.op == "where" ? 1 : 0; i < n.inputs.size(); ++i) {
        if (!DependsOnRaw(n.in(static_cast<int>(i)))) continue;
        if (from_raw != nullptr) return false;
        from_raw = &n.in(static_cast<int>(i));
      }
    }
    return from_raw != nullptr && (IsScaled(*from_raw) || Decide(*from_raw));
  }

  // Whether what `scores` are made of beside raw values has several rows.
  bool DifferByRow(const Tensor& scores) const {
    if (&scores == s_.raw) return false;
    const auto [known, fresh] = differs_.emplace(&scores, false);
    if (!fresh) return known->second;
    bool differs = false;
    if (scores.producer == nullptr || !scores.inlined) {
      const int rows = static_cast<int>(s_.rows.size());
      for (int axis = 2; axis <= rows + 1 && axis <= scores.rank(); ++axis) {  // from behind, before the keys
        differs |= scores.dims[scores.rank() - axis] != Extent(1);
      }
    } else {
      const auto& inputs = scores.producer->inputs;
      differs = !IsElementwise(scores.producer->op) ||
                std::any_of(inputs.begin(), inputs.end(), [&](const Tensor* t) { return DifferByRow(*t); });
    }
    return differs_[&scores] = differs;
  }

 private:
  // 0 of a raw value of 0.
  bool IsScaled(const Tensor& t) const {
    if (&t == s_.raw) return true;
    if (t.producer == nullptr || !DependsOnRaw(t)) return false;
    const Node& n = *t.producer;
    if (n.op == "cast" || n.op == "tanh" || n.op == "neg") return IsScaled(n.in(0));
    if (n.op == "mul" && !DependsOnRaw(n.in(0))) return IsScaled(n.in(1));
    return (n.op == "mul" || n.op == "div") && !DependsOnRaw(n.in(1)) && IsScaled(n.in(0));
  }

  bool DependsOnRaw(const Tensor& t) const {
    if (&t == s_.raw) return true;
    if (t.producer == nullptr) return false;
    const auto [known, fresh] = depends_.emplace(&t, false);
    if (!fresh) return known->second;
    const auto& inputs = t.producer->inputs;
    return depends_[&t] =
               std::any_of(inputs.begin(), inputs.end(), [&](const Tensor* in) { return DependsOnRaw(*in); });
  }

  const ScoreRows& s_;
  mutable std::map<const Tensor*, bool> depends_, differs_;  // as found: what is read many times is looked at once
};

bool IsZero(const Tensor& t) {
  return t.literal != nullptr &&
         std::all_of(t.literal->data.begin(), t.literal->data.end(), [](char c) { return c == 0; });
}

// Whether `result` of a weight of 0 is 0.
bool KeepsZero(const Tensor& result, const Tensor& weights) {
  if (&result == &weights || IsZero(result)) return true;
  if (result.producer == nullptr) return false;
  const Node& n = *result.producer;
  if (n.op == "cast") return KeepsZero(n.in(0), weights);
  if (n.op != "where") return false;
  // PyTorch's guards: a number in place of NaN; 0 for rows that see nothing.
  const Node* condition = n.in(0).producer;
  const bool of_nan = condition != nullptr && condition->op == "isnan" && &condition->in(0) == &n.in(2);
  return (of_nan || KeepsZero(n.in(1), weights)) && KeepsZero(n.in(2), weights);
}

// Of the scores of raw values 0, in a vector from key `i` on: 1 where it is not masked, else 0.
Value Seen(Kernel& k, const ScoreRows& s, Indices at, Value i) {
  Ops& o = k.o;
  const mlir::Type vector = o.ComputeType(s.accumulator, s.lanes);
  Eval e(k, s.lanes);
  e.Provide(*s.raw, o.ConstF(vector, 0));
  at.push_back(Index(i, 1));
  const Value masked = o.CompareF(Compare::kLe, e.At(*s.scores, at), o.ConstF(vector, kMasked));
  return o.Select(masked, o.ConstF(vector, 0), o.ConstF(vector, 1));
}

Value Any(Ops& o, Value seen) {
  const Value most = o.ReduceLanes(seen, [&](Value a, Value b) { return o.AddF(a, b); });
  return o.CompareF(Compare::kGt, most, o.ConstF(most.getType(), 0));
}

}  // namespace

std::optional<SeenKeys> SeenKeys::Of(const ScoreRows& s) {
  if (s.lanes == 1 || s.brains > 0 || (s.extent.is_static() && s.extent.value() < kLeastKeys)) return std::nullopt;
  const Masks masks(s);
  if (!masks.Decide(*s.scores) || !KeepsZero(*s.result, *s.weights)) return std::nullopt;
  SeenKeys seen;
  seen.by_row_ = masks.DifferByRow(*s.scores);
  return seen;
}

Value SeenKeys::Emit(Kernel& k, const ScoreRows& s, const Indices& batch, Value first, Value rows) const {
  Ops& o = k.o;
  const int64_t step = kVectorsAtOnce * s.lanes;
  const Value all = o.Int(s.extent), whole = o.Int(s.extent / step * Extent(step));
  // Of one row, backwards: what is behind the whole steps, then these.
  auto of_row = [&](Value row) {
    Indices at = batch;
    for (const Index& i : Delinearise(o, row, s.rows)) at.push_back(i);
    const mlir::Type vector = o.ComputeType(s.accumulator, s.lanes);
    const Value rest = o.For(whole, all, s.lanes, {o.ConstF(vector, 0)}, [&](Value i, const Values& in) {
      return Values{o.AddF(in[0], Seen(k, s, at, o.Min(i, o.Int(s.extent - s.lanes))))};
    })[0];
    const Values found = o.While(
        {whole, o.Int(0)},
        [&](const Values& state) { return o.And(o.Less(o.Int(0), state[0]), o.Equal(state[1], o.Int(0))); },
        [&](const Values& state) {
          const Value begin = o.Sub(state[0], o.Int(step));
          Value seen = Seen(k, s, at, begin);
          for (int64_t v = 1; v < kVectorsAtOnce; ++v) {
            seen = o.AddF(seen, Seen(k, s, at, o.KernelBuilder::Add(begin, v * s.lanes)));
          }
          // Where it is seen, its end is what was looked for.
          const Value any = Any(o, seen);
          return Values{o.Select(any, state[0], begin), o.Select(any, o.Int(1), o.Int(0))};
        });
    const Value none = o.Equal(found[1], o.Int(0));
    return o.Select(none, all, o.Select(Any(o, rest), all, found[0]));
  };
  auto of_rows = [&] {
    const Value count = by_row_ ? rows : o.Int(1);
    return o.For(o.Int(0), count, 1, {o.Int(0)},
                 [&](Value r, const Values& in) { return Values{o.Max(in[0], of_row(o.Add(first, r)))}; });
  };
  if (s.extent.is_static()) return of_rows()[0];
  return o.IfElse(o.Less(all, o.Int(kLeastKeys)), {all.getType()}, [&] { return Values{all}; }, of_rows)[0];
}

SeenOfHeads::SeenOfHeads(FunctionEmitter& f, const SeenKeys& keys, const ScoreRows& s, const Shape& batch,
                         const Extent& rows)
    : seen_(f.Temporary(Product(batch) * static_cast<int64_t>(sizeof(int64_t)))) {
  f.ParallelEach(Product(batch), Cycles(s.extent), [&](Kernel& k, Value head) {
    const Value seen = keys.Emit(k, s, Delinearise(k.o, head, batch), k.o.Int(0), k.o.Int(rows));
    k.o.Store(seen, k.o.At(k.Pointer(*seen_), head, seen.getType()));
  });
}

Value SeenOfHeads::Of(Kernel& k, Value head) const {
  if (!seen_) return nullptr;
  const mlir::Type number = k.o.b.getI64Type();
  return k.o.Load(number, k.o.At(k.Pointer(*seen_), head, number));
}

}  // namespace inlay::native
