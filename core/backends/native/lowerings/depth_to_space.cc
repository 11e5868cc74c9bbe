// Planes whose elements take turns along a row: out[.., w * s + r] = x[.., r, .., w]. Vectors of each plane are loaded
// and woven in registers; a row may begin and end anywhere in them, as it does in a cropped transposed convolution.
#include <algorithm>
#include <vector>

#include "core/backends/native/composites.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

using mlir::Value;

class DepthToSpace {
 public:
  DepthToSpace(FunctionEmitter& f, const Node& n)
      : f_(f),
        n_(n),
        moved_(n.parts.at("transpose")->out()),
        merged_(n.parts.at("reshape")->out()),
        perm_(n.parts.at("transpose")->attrs->Ints("perm")),
        begins_(merged_.rank(), 0),
        planes_(moved_.dims.back().value()) {
    SplitsDims(merged_.dims, moved_.dims, &part_of_);
    auto slice = n.parts.find("slice");
    if (slice != n.parts.end()) begins_ = slice->second->attrs->Ints("begins");  // not negative
  }

  void Emit() {
    const Tensor& out = n_.out();
    if (!out.dims.back().is_static()) return EmitOpenRows();
    const int64_t width = out.dims.back().value(), max_lanes = f_.LanesFor({&n_.in(0), &out}, Extent(width));
    // Elements of each plane that are taken at a time.
    int64_t count = max_lanes;
    while (count > 1 && count * planes_ > width) count /= 2;
    const int64_t step = std::min(count * planes_, width);
    Shape outer(out.dims.begin(), out.dims.end() - 1);
    f_.ParallelEach(Product(outer), Cycles(width) * 2.0 / max_lanes + 20, [&](Kernel& k, Value item) {
      Ops& o = k.o;
      const Indices at = Delinearise(o, item, outer);
      const Indices row = RowOfInput(o, at);
      o.For(o.Int(0), o.Int(width / step), 1, [&](Value block) {
        EmitBlock(k, at, row, o.Mul(block, step), begins_.back() % planes_,
                  o.Add(o.Mul(block, step / planes_), begins_.back() / planes_), count);
      });
      // What is left of the row: a block that begins earlier, where it may be another plane's turn.
      if (width % step == 0) return;
      const int64_t first = begins_.back() + width - step;
      EmitBlock(k, at, row, o.Int(width - step), first % planes_, o.Int(first / planes_), count);
    });
  }

 private:
  // Rows of an open number of whole turns: the last block begins earlier.
  void EmitOpenRows() {
    const Tensor& out = n_.out();
    const Extent& width = out.dims.back();
    const int64_t lanes = f_.LanesFor({&n_.in(0), &out}, width);
    const Shape outer(out.dims.begin(), out.dims.end() - 1);
    auto emit = [&](int64_t count) {
      const int64_t step = count * planes_;
      f_.ParallelEach(Product(outer), Cycles(width) * (2.0 / count) + 20, [&](Kernel& k, Value item) {
        Ops& o = k.o;
        const Indices at = Delinearise(o, item, outer);
        const Indices row = RowOfInput(o, at);
        o.For(o.Int(0), o.Int(width), step, [&](Value i) {
          const Value column = o.Min(i, o.Int(width - step));
          const Value place = o.Add(o.Div(column, planes_), begins_.back() / planes_);
          EmitBlock(k, at, row, column, begins_.back() % planes_, place, count);
        });
      });
    };
    f_.Either({{width, lanes * planes_, INT64_MAX}}, [&] { emit(lanes); }, [&] { emit(1); });
  }

  // The indices of x, but for the plane and the place in it.
  Indices RowOfInput(Ops& o, const Indices& at) const {
    Indices row(moved_.rank(), Index(o.Int(0)));
    int d = -1;
    Value left;
    for (int i = moved_.rank() - 3; i >= 0; --i) {
      if (part_of_[i] < 0) continue;
      if (part_of_[i] != d) {
        d = part_of_[i];
        left = o.Add(at[d].base, begins_[d]);
      }
      row[perm_[i]] = Index(o.Rem(left, moved_.dims[i]));
      left = o.Div(left, moved_.dims[i]);
    }
    return row;
  }

  // Elements `column` to column + count * planes of a row. The first is that at `place` of plane `turn`.
  void EmitBlock(Kernel& k, const Indices& at, Indices row, Value column, int64_t turn, Value place, int64_t count) {
    Ops& o = k.o;
    std::vector<Value> parts;  // as their turns come
    for (int64_t i = 0; i < planes_; ++i) {
      row[perm_.back()] = Index(o.Int((turn + i) % planes_));
      row.back() = Index(o.Add(place, (turn + i) / planes_), count == 1 ? 0 : 1);
      Eval e(k, count);
      parts.push_back(e.At(n_.in(0), row));
    }
    const std::vector<Value> woven = Weave(o, std::move(parts));
    for (size_t i = 0; i < woven.size(); ++i) {
      const int64_t lanes = Ops::Lanes(woven[i]);
      Indices to = at;
      to.push_back(Index(o.Add(column, static_cast<int64_t>(i) * lanes), lanes == 1 ? 0 : 1));
      k.StoreResult(n_.out(), to, woven[i]);
    }
  }

  // Lane j of part i is element j * parts + i of what is given back, piece by piece.
  static std::vector<Value> Weave(Ops& o, std::vector<Value> parts) {
    const int64_t count = static_cast<int64_t>(parts.size()), lanes = Ops::Lanes(parts[0]);
    if (lanes == 1) return parts;
    if ((count & (count - 1)) == 0) return WeaveHalves(o, parts);
    // Three, five, ...: each vector picks its lanes, part by part.
    std::vector<Value> woven;
    for (int64_t v = 0; v < count; ++v) {
      Value vector = parts[0];
      std::vector<int64_t> mask(lanes);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t element = v * lanes + lane;
          if (i == 0) mask[lane] = element / count;
          if (i > 0) mask[lane] = element % count == i ? lanes + element / count : lane;
        }
        vector = i == 0 ? o.Shuffle(vector, vector, mask) : o.Shuffle(vector, parts[i], mask);
      }
      woven.push_back(vector);
    }
    return woven;
  }

  static std::vector<Value> WeaveHalves(Ops& o, const std::vector<Value>& parts) {
    if (parts.size() == 1) return parts;
    std::vector<Value> even, odd;
    for (size_t i = 0; i < parts.size(); i += 2) {
      even.push_back(parts[i]);
      odd.push_back(parts[i + 1]);
    }
    even = WeaveHalves(o, even);
    odd = WeaveHalves(o, odd);
    const int64_t lanes = Ops::Lanes(parts[0]);
    std::vector<Value> woven;
    for (size_t i = 0; i < even.size(); ++i) {
      for (int64_t half : {int64_t{0}, lanes / 2}) {
        std::vector<int64_t> mask;
        for (int64_t lane = 0; lane < lanes; ++lane) mask.push_back(half + lane / 2 + lane % 2 * lanes);
        woven.push_back(o.Shuffle(even[i], odd[i], mask));
      }
    }
    return woven;
  }

  FunctionEmitter& f_;
  const Node& n_;
  const Tensor &moved_, &merged_;  // the transpose's result, and the reshape's
  const std::vector<int64_t>& perm_;
  std::vector<int64_t> begins_;  // of the slice
  const int64_t planes_;
  std::vector<int> part_of_;  // of merged_'s dimensions, by moved_'s
};

absl::Status EmitDepthToSpace(FunctionEmitter& f, const Node& n) {
  DepthToSpace(f, n).Emit();
  return absl::OkStatus();
}

}  // namespace

void RegisterDepthToSpace(LoweringTable* table) {
  Lowering& lowering = (*table)[kDepthToSpace];
  lowering.kernel = EmitDepthToSpace;
  lowering.cost = 4;
  lowering.epilogue = true;
}

}  // namespace inlay::native
