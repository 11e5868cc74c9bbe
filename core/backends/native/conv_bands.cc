#include "core/backends/native/conv_bands.h"

#include "core/backends/native/conv_planes.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

class BandEmitter {
 public:
  BandEmitter(KernelBuilder& kb, const ConvKernel& kernel, Value task, Value scratch)
      : kb_(kb), kernel_(kernel), plan_(kernel.plan), s_(plan_.shape), g_(plan_.gemm), type_(kernel.accumulator) {
    batch_ = kb.Div(task, plan_.bands());
    // Along the axis that is cut: of a band, of all of them, and pixels that lie at one place.
    const int64_t size = plan_.cuts_row() ? plan_.band_width : plan_.band;
    const int64_t length = plan_.cuts_row() ? s_.out[2] : s_.out[1], pixels = plan_.cuts_row() ? 1 : s_.out[2];
    first_ = kb.Mul(kb.Rem(task, plan_.bands()), size);
    const Value here = length % size == 0 ? kb.Int(size) : kb.Min(kb.Int(size), kb.Sub(kb.Int(length), first_));
    pixels_ = kb.Mul(here, pixels);
    first_pixel_ = kb.Mul(first_, pixels);
    planes_ = scratch;
    results_ = kb.At(scratch, plan_.band_plane_elements(), type_);
  }

  void Emit() {
    const int64_t channels = plan_.group_channels();
    const InputElements& elements = kernel_.input_elements;
    Value x = kb_.At(kernel_.input, kb_.Mul(batch_, channels * s_.in_elements()), elements.stored);
    kb_.For(channels, [&](Value c) {
      Value plane = kb_.At(x, kb_.Mul(c, s_.in_elements()), elements.stored);
      const auto pad = plan_.cuts_row() ? EmitPadPart : EmitPadPlane;
      pad(kb_, plan_, plane, elements, type_, first_, kb_.At(planes_, kb_.Mul(c, plan_.plane_elements()), type_));
    });
    const int64_t group = plan_.packed_weight_elements() / s_.groups, whole = g_.m / g_.mr;
    Value weights = kb_.At(kernel_.weights, kb_.Mul(kb_.Rem(batch_, s_.groups), group), kernel_.weight_element);
    kb_.For(kb_.Int(0), kb_.Int(CeilDiv(g_.m, g_.mr)), 1, [&](Value tile) {
      Value p = kb_.At(weights, kb_.Mul(tile, g_.mr * g_.k), kernel_.weight_element);
      Value first = kb_.Mul(tile, g_.mr);
      if (g_.m_tail() == 0) {
        Panels(g_.mr, p, first);
        StoreRows(first, kb_.Int(g_.mr));
        return;
      }
      kb_.If(kb_.Less(tile, kb_.Int(whole)), [&] { Panels(g_.mr, p, first); }, [&] { Panels(g_.m_tail(), p, first); });
      StoreRows(first, kb_.Min(kb_.Int(g_.mr), kb_.Sub(kb_.Int(g_.m), first)));
    });
  }

 private:
  // The sums of `rows` output channels from `first` on, at all of the band's columns.
  void Panels(int64_t rows, Value weights, Value first) {
    const bool last_differs = g_.nv_last != g_.nv;
    const int64_t alike = g_.panels() - (last_differs ? 1 : 0);
    kb_.For(kb_.Int(0), DirectPanels(), 1, [&](Value panel) {
      const Value column = kb_.Mul(panel, g_.nr());
      const std::vector<Value> sums = Sums(rows, g_.nv, weights, column);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t v = 0; v < g_.nv; ++v) {
          const Value pixel = kb_.Add(first_pixel_, kb_.Add(column, v * g_.lanes));
          kernel_.epilogue(kb_, batch_, kb_.Add(first, r), pixel, sums[r * g_.nv + v]);
        }
      }
    });
    if (StoresAll()) return;
    kb_.For(DirectPanels(), kb_.Int(alike), 1, [&](Value panel) { Panel(rows, g_.nv, weights, panel); });
    if (last_differs) Panel(rows, g_.nv_last, weights, kb_.Int(g_.panels() - 1));
  }

  // Of a sequence, panels whose columns are all pixels have theirs stored from the registers.
  Value DirectPanels() const {
    return plan_.cuts_row() && kernel_.inline_epilogue ? kb_.Div(pixels_, g_.nr()) : kb_.Int(0);
  }
  // Whether those are all panels, of all bands.
  bool StoresAll() const {
    return plan_.cuts_row() && kernel_.inline_epilogue && plan_.band_width % g_.nr() == 0 && s_.out[2] % g_.nr() == 0;
  }

  void Panel(int64_t rows, int64_t vectors, Value weights, Value panel) {
    const Value column = kb_.Mul(panel, g_.nr());
    const std::vector<Value> sums = Sums(rows, vectors, weights, column);
    for (int64_t r = 0; r < rows; ++r) {
      Value to = kb_.At(results_, kb_.Add(column, r * g_.packed_columns()), type_);
      for (int64_t v = 0; v < vectors; ++v) kb_.Store(sums[r * vectors + v], kb_.At(to, v * g_.lanes, type_));
    }
  }

  std::vector<Value> Sums(int64_t rows, int64_t vectors, Value weights, Value column) {
    RegisterTile t;
    t.rows = rows;
    t.vectors = vectors;
    t.lanes = g_.lanes;
    t.accumulator = type_;
    t.multiply_add = kernel_.multiply_add;
    t.p = weights;
    t.p_element = kernel_.weight_element;
    t.p_row_stride = 1;
    t.p_k_stride = g_.mr;
    t.q = kb_.At(planes_, column, type_);
    t.q_element = type_;
    t.q_k_stride = plan_.plane_elements();
    t.q_columns = vectors * g_.lanes;
    t.inner_of_q = true;
    for (int d = 1; d < 3; ++d) {
      t.inner.push_back({s_.kernel[d], [this, d](KernelBuilder& kb, Value tap) {
                           Value at[3] = {kb.Int(0), kb.Int(0), kb.Int(0)};
                           at[d] = tap;
                           return TapOffset(kb, plan_, at[0], at[1], at[2]);
                         }});
    }
    std::vector<Value> sums(rows * vectors, kb_.Zero(KernelBuilder::Vector(g_.lanes, type_)));
    return EmitRegisterTile(kb_, t, kb_.Int(0), kb_.Int(plan_.group_channels()), sums);
  }

  // Channels [first, first + rows) to the epilogue: the pixels without what lies between the rows, and without those
  // of DirectPanels().
  void StoreRows(Value first, Value rows) {
    if (StoresAll()) return;
    const Value begin = kb_.Mul(DirectPanels(), g_.nr()), whole = kb_.Mul(kb_.Div(pixels_, g_.lanes), g_.lanes);
    auto for_rows = [&](Value pixel, const std::function<Value(Value offset)>& load) {
      kb_.For(kb_.Int(0), rows, 1, [&](Value r) {
        kernel_.epilogue(kb_, batch_, kb_.Add(first, r), kb_.Add(first_pixel_, pixel),
                         load(kb_.Mul(r, g_.packed_columns())));
      });
    };
    kb_.For(begin, whole, g_.lanes, [&](Value pixel) {
      PixelVector at = LocatePixels(kb_, plan_, results_, type_, pixel, plan_.band);
      for_rows(pixel, [&](Value offset) { return LoadPixels(kb_, plan_, at, offset, type_); });
    });
    kb_.For(whole, pixels_, 1, [&](Value pixel) {
      Value at = kb_.Add(kb_.Mul(kb_.Div(pixel, s_.out[2]), plan_.padded[2]), kb_.Rem(pixel, s_.out[2]));
      for_rows(pixel, [&](Value offset) { return kb_.Load(type_, kb_.At(results_, kb_.Add(at, offset), type_)); });
    });
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvPlan& plan_;
  const ConvShape& s_;
  const GemmPlan& g_;
  const Type type_;
  Value batch_;                         // of the task
  Value first_, first_pixel_, pixels_;  // the band's first output row, or column of a sequence; its output pixels
  Value planes_, results_;
};

}  // namespace

void EmitBandTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  kb.For(begin, end, 1, [&](Value task) { BandEmitter(kb, kernel, task, scratch).Emit(); });
}

}  // namespace inlay::native
