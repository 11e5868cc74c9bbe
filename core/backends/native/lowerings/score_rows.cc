#include "core/backends/native/lowerings/score_rows.h"

#include <algorithm>

#include "core/backends/native/loops.h"
#include "core/backends/native/math.h"

namespace inlay::native {
namespace {

using mlir::Value;

// Rows side by side: a row's chain of maximum, sum and division leaves the units idle, and 128 keys are 8 vectors only.
constexpr int64_t kRowsAtOnce = 4;

class RowsEmitter {
 public:
  RowsEmitter(Kernel& k, const ScoreRows& s, const Indices& batch, Value seen)
      : k_(k), o_(k.o), s_(s), batch_(batch), lanes_(s.lanes), whole_(o_.Int(s.extent / lanes_ * Extent(lanes_))) {
    vector_ = o_.ComputeType(s.accumulator, lanes_);
    end_ = o_.Int(RoundUp(s_.extent, lanes_));
    if (seen == nullptr) return;
    sees_all_ = o_.Equal(seen, o_.Int(s.extent));
    end_ = o_.Select(sees_all_, end_, seen);
    whole_ = o_.Min(whole_, seen);
  }

  // `lines`: where the rows lie; `rows`: their indices.
  void Emit(const Values& lines, const std::vector<Indices>& rows) {
    lines_ = lines;
    rows_ = rows;
    Values maxima = Spread(ScoresAndMaxima(), [&](Value a, Value b) { return LargerOf(o_, a, b); });
    Values zeros(lines.size(), o_.ConstF(vector_, 0));
    Values sums = o_.For(o_.Int(0), end_, lanes_, zeros, [&](Value i, const Values& in) {
      Values differences, out;
      for (size_t r = 0; r < lines_.size(); ++r) differences.push_back(o_.SubF(Load(r, i), maxima[r]));
      const Values e = o_.SideBySide(differences, [&](Value d) { return ExpOfNonPositive(o_, d); });
      for (size_t r = 0; r < lines_.size(); ++r) {
        Store(r, i, e[r]);
        out.push_back(o_.AddF(in[r], e[r]));
      }
      return out;
    });
    Values factors;
    for (Value sum : sums) {
      Value total = o_.ReduceLanes(sum, [&](Value a, Value b) { return o_.AddF(a, b); });
      factors.push_back(o_.Broadcast(o_.DivF(o_.ConstF(total.getType(), 1), total), lanes_));
    }
    Normalise(factors);
  }

 private:
  Value Load(size_t r, Value i) { return o_.LoadElements(s_.accumulator, lines_[r], i, lanes_); }
  void Store(size_t r, Value i, Value v) { o_.StoreElements(s_.accumulator, v, lines_[r], i); }
  // In front of what is still to be read, where that is wider.
  void StoreResult(size_t r, Value i, Value v) {
    o_.StoreElements(s_.brains > 0 ? ir::DType::kBF16 : s_.accumulator, v, lines_[r], i);
  }

  // Whether there may be columns behind the whole vectors.
  bool has_rest() const { return !s_.extent.IsMultipleOf(lanes_); }
  // What the columns behind the whole vectors make of `values`.
  Values WithRest(const Values& values, const std::function<Values()>& rest) {
    if (!has_rest()) return values;
    if (sees_all_ == nullptr) return rest();
    const std::vector<mlir::Type> types(values.size(), vector_);
    return o_.IfElse(sees_all_, types, rest, [&] { return values; });
  }

  // What is made of `value`, which is that of `from` at column i.
  Value Map(const Tensor& from, const Tensor& to, size_t r, Value i, Value value) {
    Eval e(k_, lanes_);
    e.Provide(from, value);
    Indices at = batch_;
    at.insert(at.end(), rows_[r].begin(), rows_[r].end());
    at.push_back(Index(i, lanes_ == 1 ? 0 : 1));
    return e.At(to, at);
  }

  Values Spread(const Values& vectors, const std::function<Value(Value, Value)>& combine) {
    Values spread;
    for (Value v : vectors) spread.push_back(o_.Broadcast(o_.ReduceLanes(v, combine), lanes_));
    return spread;
  }

  // Raw values become scores; what is beyond the extent in the last vector becomes -Inf, which softmax does not see.
  // A mask may not be read beyond its end: the last vector's scores are those of the row's last `lanes` columns, whose
  // raw values are taken before the loop changes them, moved to their place.
  Values ScoresAndMaxima() {
    bool mapped = s_.scores != s_.raw;
    Value last = o_.Int(s_.extent - lanes_);
    Values tails;
    for (size_t r = 0; has_rest() && r < lines_.size(); ++r) tails.push_back(Load(r, last));
    Value lowest = o_.LowestN(s_.accumulator, vector_);
    Values maxima = o_.For(o_.Int(0), whole_, lanes_, Values(lines_.size(), lowest), [&](Value i, const Values& in) {
      Values out;
      for (size_t r = 0; r < lines_.size(); ++r) {
        Value v = Load(r, i);
        if (mapped) {
          v = Map(*s_.raw, *s_.scores, r, i, v);
          Store(r, i, v);
        }
        out.push_back(LargerOf(o_, v, in[r]));
      }
      return out;
    });
    return WithRest(maxima, [&] {
      Values larger;
      for (size_t r = 0; r < tails.size(); ++r) {
        Value v = Map(*s_.raw, *s_.scores, r, last, tails[r]);
        if (s_.extent.is_static()) {
          const int64_t rest = s_.extent.value() % lanes_;
          std::vector<int64_t> move;
          for (int64_t l = 0; l < lanes_; ++l) move.push_back(l < rest ? lanes_ - rest + l : lanes_);
          v = o_.Shuffle(v, lowest, move);
          Store(r, o_.Int(s_.extent.value() - rest), v);
        } else {  // where to is the run's to say; what they lie on is the same
          Store(r, last, v);
          Store(r, o_.Int(s_.extent), lowest);
        }
        larger.push_back(LargerOf(o_, v, maxima[r]));
      }
      return larger;
    });
  }

  void Normalise(const Values& factors) {
    bool mapped = s_.result != s_.weights;
    auto scaled = [&](size_t r, Value i) { return o_.MulF(Load(r, i), factors[r]); };
    Value last = o_.Int(s_.extent - lanes_);
    Values tails;
    for (size_t r = 0; mapped && has_rest() && r < lines_.size(); ++r) tails.push_back(scaled(r, last));
    o_.For(o_.Int(0), mapped ? whole_ : end_, lanes_, [&](Value i) {
      for (size_t r = 0; r < lines_.size(); ++r) {
        Value v = scaled(r, i);
        StoreResult(r, i, mapped ? Map(*s_.weights, *s_.result, r, i, v) : v);
      }
    });
    WithRest({}, [&] {
      for (size_t r = 0; r < tails.size(); ++r) StoreResult(r, last, Map(*s_.weights, *s_.result, r, last, tails[r]));
      return Values();
    });
    if (s_.brains > 0) {
      const int64_t keys = s_.extent.value(), bytes = (s_.brains - keys) * ir::ByteSize(ir::DType::kBF16);
      for (Value line : lines_) o_.ZeroBytes(o_.At(line, keys, o_.StoredType(ir::DType::kBF16)), bytes);
    }
  }

  Kernel& k_;
  Ops& o_;
  const ScoreRows& s_;
  const Indices& batch_;
  int64_t lanes_;
  Value whole_, end_;  // columns of whole vectors, of all
  Value sees_all_;     // null: always
  mlir::Type vector_;
  Values lines_;
  std::vector<Indices> rows_;
};

}  // namespace

int64_t LanesOf(FunctionEmitter& f, const ScoreRows& s) {
  return std::min({f.LanesForBytes(ir::ByteSize(s.accumulator), s.extent),
                   f.LanesFor(f.Expression(*s.scores, s.raw), s.extent),
                   f.LanesFor(f.Expression(*s.result, s.weights), s.extent)});
}

void EmitScoreRows(Kernel& k, const ScoreRows& s, Value block, const Indices& batch, Value first, Value rows,
                   Value seen) {
  Ops& o = k.o;
  mlir::Type element = o.ComputeType(s.accumulator);
  auto emit = [&](Value row, int64_t count) {
    Values lines;
    std::vector<Indices> indices;
    for (int64_t r = 0; r < count; ++r) {
      Value here = o.KernelBuilder::Add(row, r);
      lines.push_back(o.At(block, o.Mul(here, s.stride), element));
      indices.push_back(Delinearise(o, o.KernelBuilder::Add(first, here), s.rows));
    }
    RowsEmitter(k, s, batch, seen).Emit(lines, indices);
  };
  Value together = o.Mul(o.Div(rows, kRowsAtOnce), kRowsAtOnce);
  o.For(o.Int(0), together, kRowsAtOnce, [&](Value row) { emit(row, kRowsAtOnce); });
  o.For(together, rows, 1, [&](Value row) { emit(row, 1); });
}

}  // namespace inlay::native
