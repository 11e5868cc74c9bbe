#include "core/backends/native/depthwise.h"
#include "core/backends/native/depthwise_plan.h"
#include "core/backends/native/packing.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

class ChannelTasks {
 public:
  ChannelTasks(KernelBuilder& kb, const ConvKernel& kernel, Value scratch)
      : kb_(kb),
        kernel_(kernel),
        plan_(kernel.plan),
        s_(kernel.plan.shape),
        lanes_(plan_.lanes),
        pitch_(DepthwiseChannelPitch(plan_)),
        type_(kernel.accumulator),
        vector_(KernelBuilder::Vector(lanes_, type_)),
        sums_(scratch),
        by_channel_(kb.At(sums_, pitch_ * lanes_, type_)),
        x_(kb.At(by_channel_, pitch_ * lanes_, type_)) {}

  void Emit(Value task) {
    Value image = kb_.Div(task, plan_.channel_blocks()), block = kb_.Rem(task, plan_.channel_blocks());
    Value first = kb_.Mul(block, lanes_);  // output channel of lane 0
    GatherPlanes(image, first);
    weights_ = kb_.At(kernel_.weights, kb_.Mul(block, s_.taps() * lanes_), type_);
    kb_.For(s_.out[1], [&](Value row) {
      const int64_t columns = plan_.depthwise.columns;
      for (int64_t c = 0; c < s_.out[2]; c += columns) Columns(row, c, std::min(columns, s_.out[2] - c));
    });
    kb_.For(kb_.Int(0), kb_.Int(pitch_), lanes_, [&](Value pixel) {
      Value from = kb_.At(sums_, kb_.Mul(pixel, lanes_), type_), to = kb_.At(by_channel_, pixel, type_);
      Transpose([&](int64_t i) { return kb_.Load(vector_, kb_.At(from, i * lanes_, type_)); },
                [&](int64_t i, Value v) { kb_.Store(v, kb_.At(to, i * pitch_, type_)); });
    });
    const int64_t multiples = s_.m / s_.groups;
    kb_.For(kb_.Int(0), kb_.Min(kb_.Int(lanes_), kb_.Sub(kb_.Int(s_.m), first)), 1, [&](Value lane) {
      Value channel = kb_.Add(first, lane);
      Value batch = kb_.Add(kb_.Mul(image, s_.groups), kb_.Div(channel, multiples));
      EmitDenseEpilogue(kb_, kernel_, batch, kb_.Rem(channel, multiples), kb_.Int(0), s_.pixels(),
                        kb_.At(by_channel_, kb_.Mul(lane, pitch_), type_));
    });
  }

 private:
  void Transpose(const std::function<Value(int64_t)>& load, const std::function<void(int64_t, Value)>& store) {
    std::vector<Value> square;
    for (int64_t i = 0; i < lanes_; ++i) square.push_back(load(i));
    square = TransposeSquare(kb_, square);
    for (int64_t i = 0; i < lanes_; ++i) store(i, square[i]);
  }

  // The planes that the block's channels see, to [pixel][lane].
  void GatherPlanes(Value image, Value first) {
    const std::vector<Value> planes = ChannelPlanes(kb_, kernel_, image, first);
    Type stored = KernelBuilder::Vector(lanes_, kernel_.input_elements.stored);
    auto square = [&](Value pixel, int64_t count) {
      Value to = kb_.At(x_, kb_.Mul(pixel, lanes_), type_);
      Transpose(
          [&](int64_t i) {
            Value from = kb_.At(planes[i], pixel, kernel_.input_elements.stored);
            return kernel_.input_elements.Convert(kb_, kb_.LoadFirst(stored, from, count), type_);
          },
          [&](int64_t i, Value v) { kb_.Store(v, kb_.At(to, i * lanes_, type_)); });
    };
    const int64_t rest = s_.in_elements() % lanes_, whole = s_.in_elements() - rest;
    kb_.For(kb_.Int(0), kb_.Int(whole), lanes_, [&](Value pixel) { square(pixel, lanes_); });
    if (rest > 0) square(kb_.Int(whole), rest);
  }

  // Output columns [first, first + count) of a row: taps outside of x are not there at all.
  void Columns(Value row, int64_t first, int64_t count) {
    Value top = kb_.Add(kb_.Mul(row, s_.stride[1]), -s_.pad[1]);
    Value begin = kb_.Max(kb_.Int(0), kb_.Sub(kb_.Int(0), top));
    Value end = kb_.Min(kb_.Int(s_.kernel[1]), kb_.Sub(kb_.Int(s_.in[1]), top));
    std::vector<Value> sums(count, kb_.Zero(vector_));
    sums = kb_.For(begin, end, 1, sums, [&](Value h, std::vector<Value> sums) {
      Value x = kb_.At(x_, kb_.Mul(kb_.Add(top, h), s_.in[2] * lanes_), type_);
      Value w = kb_.At(weights_, kb_.Mul(h, s_.kernel[2] * lanes_), type_);
      return EmitChannelRow(kb_, s_, InputElements{type_}, x, lanes_, w, lanes_, first, sums);
    });
    Value to = kb_.At(sums_, kb_.Mul(kb_.Add(kb_.Mul(row, s_.out[2]), first), lanes_), type_);
    for (int64_t c = 0; c < count; ++c) kb_.Store(sums[c], kb_.At(to, c * lanes_, type_));
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvPlan& plan_;
  const ConvShape& s_;
  const int64_t lanes_, pitch_;
  const Type type_, vector_;
  const Value sums_, by_channel_, x_;  // [pixel][lane], [lane][pitch], [pixel of x][lane]
  Value weights_;                      // of the block
};

}  // namespace

std::vector<Value> ChannelPlanes(KernelBuilder& kb, const ConvKernel& kernel, Value image, Value first) {
  const ConvShape& s = kernel.plan.shape;
  std::vector<Value> planes;
  for (int64_t l = 0; l < kernel.plan.lanes; ++l) {
    Value channel = kb.Min(kb.Add(first, l), kb.Int(s.m - 1));
    Value plane = kb.Add(kb.Mul(image, s.c), kb.Div(channel, s.m / s.groups));
    planes.push_back(kb.At(kernel.input, kb.Mul(plane, s.in_elements()), kernel.input_elements.stored));
  }
  return planes;
}

std::vector<Value> EmitChannelRow(KernelBuilder& kb, const ConvShape& shape, const InputElements& elements, Value x,
                                  int64_t x_pitch, Value w, int64_t w_pitch, int64_t first, std::vector<Value> sums) {
  const Type vector = sums[0].getType(), element = mlir::getElementTypeOrSelf(vector);
  Type stored = elements.stored;
  if (auto shaped = llvm::dyn_cast<mlir::VectorType>(vector)) {
    stored = KernelBuilder::Vector(shaped.getNumElements(), elements.stored);
  }
  const int64_t count = static_cast<int64_t>(sums.size()), stride = shape.stride[2];
  const int64_t left = first * stride - shape.pad[2];
  std::vector<Value> taps(shape.kernel[2]);
  for (int64_t j = 0; j < (count - 1) * stride + shape.kernel[2]; ++j) {
    if (left + j < 0 || left + j >= shape.in[2]) continue;
    Value column;
    for (int64_t c = 0; c < count; ++c) {
      const int64_t t = j - c * stride;
      if (t < 0 || t >= shape.kernel[2]) continue;
      if (!column) {
        const Value pixel = kb.Load(stored, kb.At(x, (left + j) * x_pitch, elements.stored));
        column = elements.Convert(kb, pixel, element);
      }
      if (!taps[t]) taps[t] = kb.Load(vector, kb.At(w, t * w_pitch, element));
      sums[c] = kb.MultiplyAdd(taps[t], column, sums[c]);
    }
  }
  return sums;
}

void EmitDepthwiseChannelTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  ChannelTasks tasks(kb, kernel, scratch);
  kb.For(begin, end, 1, [&](Value task) { tasks.Emit(task); });
}

void EmitPackDepthwiseWeights(KernelBuilder& kb, const ConvPlan& plan, Value w, Type element, Type packed, Value to) {
  const ConvShape& s = plan.shape;
  const int64_t lanes = plan.lanes;
  kb.For(plan.channel_blocks(), [&](Value block) {
    kb.For(lanes, [&](Value lane) {
      Value channel = kb.Add(kb.Mul(block, lanes), lane);
      Value from = kb.At(w, kb.Mul(channel, s.taps()), element);
      Value target = kb.At(to, kb.Add(kb.Mul(block, s.taps() * lanes), lane), packed);
      auto fill = [&](const std::function<Value(Value)>& value) {
        kb.For(s.taps(), [&](Value t) { kb.Store(value(t), kb.At(target, kb.Mul(t, lanes), packed)); });
      };
      kb.If(
          kb.Less(channel, kb.Int(s.m)),
          [&] {
            fill([&](Value t) {
              Value at = s.reversed ? kb.Sub(kb.Int(s.taps() - 1), t) : t;
              return kb.Widen(kb.Load(element, kb.At(from, at, element)), packed);
            });
          },
          [&] { fill([&](Value) { return kb.Zero(packed); }); });
    });
  });
}

}  // namespace inlay::native
