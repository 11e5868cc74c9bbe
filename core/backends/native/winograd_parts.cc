#include "core/backends/native/winograd_parts.h"

#include "core/backends/native/packing.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

void EmitWinogradTile(KernelBuilder& kb, const WinogradPlan& plan, Value d, const Extent& pitch, Value tile, Value to) {
  const Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(plan.lanes, f32);
  const std::vector<WinogradPoint> places = plan.point_places();
  const Values v = BothWays(
      plan, plan.rows.inputs(), plan.columns.inputs(),
      [&](int64_t i, int64_t j) { return kb.Load(vector, kb.At(d, pitch * i + j * plan.lanes, f32)); },
      [&](const WinogradAxis& axis, const Values& x) { return InputTransform(kb, axis, x); });
  for (const WinogradProducts& of : plan.product_kinds()) {
    const Value target = kb.At(to, kb.Mul(tile, of.terms * plan.tile_channels()), f32);
    for (size_t i = 0; i < v.size(); ++i) {
      if (places[i].terms == of.terms) kb.Store(v[i], kb.At(target, places[i].input, f32));
    }
  }
}

void EmitWinogradResults(KernelBuilder& kb, const WinogradPlan& plan, Value from, Value to, Value pitch,
                         int64_t apart) {
  const Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(plan.lanes, f32);
  const std::vector<int64_t> places = plan.product_places();
  const Values y = BothWays(
      plan, plan.rows.products(), plan.columns.products(),
      [&](int64_t i, int64_t j) {
        const int64_t place = places[i * plan.columns.products() + j];
        return kb.Load(vector, kb.At(from, place * plan.product_pitch(), f32));
      },
      [&](const WinogradAxis& axis, const Values& x) { return OutputTransform(kb, axis, x); });
  for (int64_t p = 0; p < plan.rows.m; ++p) {
    for (int64_t q = 0; q < plan.columns.m; ++q) {
      const Value pixel = kb.Add(kb.Mul(pitch, p), q * apart);
      kb.Store(y[p * plan.columns.m + q], kb.At(to, kb.Mul(pixel, plan.lanes), f32));
    }
  }
}

PanelChannels ChannelsOf(KernelBuilder& kb, const WinogradPlan& plan, Value panel, Value v) {
  const int64_t lanes = plan.lanes;
  const Value in_group = kb.Add(kb.Mul(kb.Rem(panel, plan.group_panels()), plan.gemm.nr()), kb.Mul(v, lanes));
  const Value group = kb.Div(panel, plan.group_panels());
  PanelChannels channels{kb.Add(kb.Mul(group, plan.group_outputs()), in_group), kb.Int(lanes)};
  if (plan.group_outputs() < plan.group_panels() * plan.gemm.nr()) {
    const Value left = kb.Sub(kb.Int(plan.group_outputs()), in_group);
    channels.count = kb.Max(kb.Int(0), kb.Min(channels.count, left));
  }
  return channels;
}

void EmitPixelRun(KernelBuilder& kb, int64_t lanes, Value results, Value length, Value image,
                  const PanelChannels& channels, Value pixel, const Epilogue& epilogue, Value square) {
  const Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(lanes, f32);
  auto squares = [&] {
    kb.For(kb.Int(0), length, lanes, [&](Value at) {
      // The last square begins earlier.
      const Value first = kb.Min(at, kb.Sub(length, kb.Int(lanes)));
      const Value from = kb.At(results, kb.Mul(first, lanes), f32);
      Values block;
      for (int64_t p = 0; p < lanes; ++p) block.push_back(kb.Load(vector, kb.At(from, p * lanes, f32)));
      block = TransposeSquare(kb, block);
      for (int64_t c = 0; c < lanes; ++c) kb.Store(block[c], kb.At(square, c * lanes, f32));
      kb.For(kb.Int(0), channels.count, 1, [&](Value c) {
        epilogue(kb, image, kb.Add(channels.first, c), kb.Add(pixel, first),
                 kb.Load(vector, kb.At(square, kb.Mul(c, lanes), f32)));
      });
    });
  };
  auto elements = [&] {
    kb.For(kb.Int(0), channels.count, 1, [&](Value c) {
      kb.For(kb.Int(0), length, 1, [&](Value p) {
        epilogue(kb, image, kb.Add(channels.first, c), kb.Add(pixel, p),
                 kb.Load(f32, kb.At(results, kb.Add(kb.Mul(p, lanes), c), f32)));
      });
    });
  };
  kb.If(kb.Less(length, kb.Int(lanes)), elements, squares);
}

}  // namespace inlay::native
