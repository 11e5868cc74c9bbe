#include <algorithm>

#include "core/backends/native/depthwise.h"
#include "core/backends/native/depthwise_plan.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Taps whose weights are in registers, beside a square of sums.
constexpr int64_t kTaps = 4;

class LineTasks {
 public:
  LineTasks(KernelBuilder& kb, const ConvKernel& kernel, Value scratch)
      : kb_(kb),
        kernel_(kernel),
        plan_(kernel.plan),
        s_(kernel.plan.shape),
        lanes_(plan_.lanes),
        stored_(kernel.input_elements.stored),
        type_(kernel.accumulator),
        vector_(KernelBuilder::Vector(lanes_, type_)),
        x_(kb.At(scratch, lanes_ * lanes_, type_)) {}

  void Emit(Value task) {
    image_ = kb_.Div(task, plan_.channel_blocks());
    const Value block = kb_.Rem(task, plan_.channel_blocks());
    first_ = kb_.Mul(block, lanes_);
    weights_ = kb_.At(kernel_.weights, kb_.Mul(block, s_.taps() * lanes_), type_);
    kb_.For(s_.out[1], [&](Value row) {
      kb_.For(CeilDiv(s_.out[2], plan_.band), [&](Value band) {
        // The last band, and the last square of one, begin earlier: computed twice.
        const Value first = kb_.Min(kb_.Mul(band, plan_.band), kb_.Int(s_.out[2] - plan_.band));
        Gather(kb_.Mul(row, s_.stride[1]), kb_.Add(kb_.Mul(first, s_.stride[2]), -s_.pad[2]));
        kb_.For(kb_.Int(0), kb_.Int(plan_.band), lanes_, [&](Value at) {
          const Value column = kb_.Min(at, kb_.Int(plan_.band - lanes_));
          Square(column, kb_.Add(kb_.Add(kb_.Mul(row, s_.out[2]), first), column));
        });
      });
    });
  }

 private:
  // Columns [start, start + DepthwiseLineColumns()) of a row of the block's planes to x_, [column][lane], zero where
  // there is no x. Squares reach up to a vector of columns beyond on both sides.
  void Gather(Value row, Value start) {
    std::vector<Value> rows = ChannelPlanes(kb_, kernel_, image_, first_);
    for (Value& plane : rows) plane = kb_.At(plane, kb_.Mul(row, s_.in[2]), stored_);
    const int64_t columns = DepthwiseLineColumns(plan_);
    const Value begin = kb_.Max(kb_.Int(0), start), end = kb_.Min(kb_.Int(s_.in[2]), kb_.Add(start, columns));
    auto zero = [&](Value from, Value to) {
      kb_.For(from, to, 1, [&](Value i) { kb_.Store(kb_.Zero(vector_), kb_.At(x_, kb_.Mul(i, lanes_), type_)); });
    };
    zero(kb_.Int(0), kb_.Min(kb_.Sub(begin, start), kb_.Int(columns)));
    zero(kb_.Max(kb_.Sub(end, start), kb_.Int(0)), kb_.Int(columns));
    kb_.For(begin, end, lanes_, [&](Value at) {
      const Value column = kb_.Min(at, kb_.Int(s_.in[2] - lanes_));
      std::vector<Value> square;
      for (int64_t l = 0; l < lanes_; ++l) {
        const Value x = kb_.Load(KernelBuilder::Vector(lanes_, stored_), kb_.At(rows[l], column, stored_));
        square.push_back(kernel_.input_elements.Convert(kb_, x, type_));
      }
      square = TransposeSquare(kb_, square);
      const Value to = kb_.At(x_, kb_.Mul(kb_.Sub(column, start), lanes_), type_);
      for (int64_t l = 0; l < lanes_; ++l) kb_.Store(square[l], kb_.At(to, l * lanes_, type_));
    });
  }

  // Output columns [column, column + lanes) of the band, to the epilogue as pixels from `pixel` on.
  void Square(Value column, Value pixel) {
    const Value x = kb_.At(x_, kb_.Mul(column, s_.stride[2] * lanes_), type_);
    auto taps = [&](Value first, int64_t count, const std::vector<Value>& sums) {
      ConvShape run = s_;  // all of it is there
      run.kernel[2] = count;
      run.pad[2] = 0;
      run.in[2] = DepthwiseLineColumns(plan_);
      const Value offset = kb_.Mul(first, lanes_);
      return EmitChannelRow(kb_, run, InputElements{type_}, kb_.At(x, offset, type_), lanes_,
                            kb_.At(weights_, offset, type_), lanes_, 0, sums);
    };
    const int64_t rest = s_.kernel[2] % kTaps, whole = s_.kernel[2] - rest;
    std::vector<Value> sums(lanes_, kb_.Zero(vector_));
    sums = kb_.For(kb_.Int(0), kb_.Int(whole), kTaps, sums,
                   [&](Value first, const std::vector<Value>& sums) { return taps(first, kTaps, sums); });
    if (rest > 0) sums = taps(kb_.Int(whole), rest, sums);
    sums = TransposeSquare(kb_, sums);
    const int64_t multiples = s_.m / s_.groups;
    for (int64_t l = 0; l < lanes_; ++l) {
      const Value channel = kb_.Add(first_, l);
      auto store = [&] {
        const Value batch = kb_.Add(kb_.Mul(image_, s_.groups), kb_.Div(channel, multiples));
        kernel_.epilogue(kb_, batch, kb_.Rem(channel, multiples), pixel, sums[l]);
      };
      if (s_.m % lanes_ == 0) {
        store();
      } else {
        kb_.If(kb_.Less(channel, kb_.Int(s_.m)), store);
      }
    }
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvPlan& plan_;
  const ConvShape& s_;
  const int64_t lanes_;
  const Type stored_, type_, vector_;
  const Value x_;
  Value image_, first_, weights_;  // of the task; its output channel of lane 0
};

}  // namespace

void EmitDepthwiseLineTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  LineTasks tasks(kb, kernel, scratch);
  kb.For(begin, end, 1, [&](Value task) { tasks.Emit(task); });
}

}  // namespace inlay::native
