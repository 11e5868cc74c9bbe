#include "core/backends/native/lowerings/depthwise_block.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/backends/native/conv.h"
#include "core/backends/native/depthwise_block_plan.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

bool IsConvOfConstants(FunctionEmitter& f, const KernelPlan& plan) {
  const Node& n = *plan.node;
  return plan.within.empty() && n.op == "conv" && n.in(0).rank() == 4 && n.in(0).dtype == ir::DType::kF32 &&
         n.in(0).is_static() && n.out().is_static() && !n.out().IsEmpty() && f.IsConstantParam(n.in(1));
}

std::optional<DepthwiseBlockPlan> PlanOf(FunctionEmitter& f, const KernelPlan& expand, const KernelPlan& depthwise) {
  return PlanDepthwiseBlock(f.cpu().core, ConvShapeOf(*expand.node, false), ConvShapeOf(*depthwise.node, false),
                            f.depthwise_block());
}

// What the emitted code cannot do of the two tails.
bool TailsAreFlat(FunctionEmitter& f, const KernelPlan& expand, const KernelPlan& depthwise) {
  ShapeMap shapes;
  bool flat = true;
  f.For(expand, [&] { flat &= FlatPixels(f, *expand.node, &shapes); });
  f.For(depthwise, [&] {
    flat = flat && FlatPixels(f, *depthwise.node, &shapes);
    for (const Tensor* t : f.Expression(*depthwise.stored(), depthwise.node->outputs[0])) {
      flat &= t != expand.stored();
    }
  });
  return flat;
}

class Block {
 public:
  Block(FunctionEmitter& f, const KernelPlan& plan)
      : f_(f),
        depthwise_(plan),
        expand_(plan.within[0]),
        plan_(*PlanOf(f, expand_, plan)),
        packs_depthwise_(plan_.planes.method != ConvMethod::kDepthwise) {}

  void Emit() {
    PackWeights();
    f_.For(expand_, [&] {
      FlatPixels(f_, *expand_.node, &shapes_);
      inline_expand_ = InlineEpilogue(f_, *expand_.node);
    });
    FlatPixels(f_, *depthwise_.node, &shapes_);
    inline_depthwise_ = InlineEpilogue(f_, *depthwise_.node);
    const double cost = plan_.cycles / static_cast<double>(plan_.tasks());
    EmitTasks(f_, plan_.tasks(), cost, plan_.scratch_bytes(), [&](Kernel& k, Value begin, Value end, Value scratch) {
      k.shapes = shapes_;
      k.o.For(begin, end, 1, [&](Value task) { EmitTask(k, task, scratch); });
    });
  }

 private:
  void PackWeights() {
    const int64_t blocks = plan_.blocks(), block_expand = plan_.packed_expand_elements();
    expand_weights_ = f_.State((blocks * block_expand + plan_.gemm.lanes) * int64_t{sizeof(float)});
    const Tensor &expand = expand_.node->in(1), &depthwise = depthwise_.node->in(1);
    block_weights_ = packs_depthwise_ ? plan_.planes.packed_weight_elements() : plan_.channels * plan_.depthwise.taps();
    depthwise_weights_ = packs_depthwise_
                             ? f_.State((blocks * block_weights_ + plan_.gemm.lanes) * int64_t{sizeof(float)})
                             : f_.BufferOf(depthwise);
    f_.Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          mlir::Type type = k.o.b.getF32Type();
          k.o.For(blocks, [&](Value block) {
            Value first = k.o.Mul(block, plan_.channels);
            Value w = k.o.At(k.Pointer(expand), k.o.Mul(first, plan_.gemm.k), type);
            EmitPackRows(k.o, plan_.gemm, StridedMatrix{w, type, 1, plan_.gemm.k},
                         k.o.At(k.Pointer(expand_weights_), k.o.Mul(block, block_expand), type));
            if (!packs_depthwise_) return;
            EmitPackConvWeights(k.o, plan_.planes,
                                k.o.At(k.Pointer(depthwise), k.o.Mul(first, plan_.depthwise.taps()), type), type, type,
                                k.o.At(k.Pointer(depthwise_weights_), k.o.Mul(block, block_weights_), type));
          });
        },
        Phase::kInit);
  }

  // Blocks of channels fastest, then bands, then images.
  void EmitTask(Kernel& k, Value task, Value scratch) {
    Ops& o = k.o;
    mlir::Type type = o.b.getF32Type();
    const ConvShape& d = plan_.depthwise;
    Value block = o.Rem(task, plan_.blocks()), rest = o.Div(task, plan_.blocks());
    Value band = o.Rem(rest, plan_.bands()), image = o.Div(rest, plan_.bands());
    Value channel = o.Mul(block, plan_.channels);
    Value out_row = o.Min(o.Mul(band, plan_.rows), o.Int(d.out[1] - plan_.rows));
    // The first row that the task sees, which may be padding, and that from which on it computes them.
    Value first = plan_.is_whole() ? o.Int(0) : o.KernelBuilder::Add(o.Mul(out_row, d.stride[1]), -d.pad[1]);
    Value from = plan_.is_whole() ? o.Int(0) : o.Min(o.Max(first, o.Int(0)), o.Int(d.in[1] - plan_.in_rows));
    Value planes = o.At(scratch, plan_.edge_elements(), type);
    Value rest_of_scratch =
        o.At(scratch, RoundUp(plan_.expanded_elements() * int64_t{sizeof(float)}, kLineBytes), o.b.getI8Type());
    Expand(k, {image, channel, block, first, from, planes, rest_of_scratch});
    if (!plan_.is_whole()) ZeroPadding(o, first, planes);

    k.Computes(depthwise_);
    ConvKernel conv;
    conv.plan = plan_.planes;
    conv.accumulator = conv.input_elements.stored = conv.weight_element = type;
    conv.input = planes;
    conv.weights = o.At(k.Pointer(depthwise_weights_), o.Mul(block, block_weights_), type);
    conv.inline_epilogue = inline_depthwise_;
    Epilogue store = StorePixels(k, *depthwise_.node, 1, true, image);
    Value first_pixel = o.Mul(out_row, d.out[2]);
    conv.epilogue = [=](KernelBuilder& kb, Value plane, Value, Value pixel, Value sum) {
      store(kb, kb.Int(0), kb.Add(channel, plane), kb.Add(first_pixel, pixel), sum);
    };
    EmitConvTasks(o, conv, o.Int(0), o.Int(plan_.planes.tasks()), rest_of_scratch);
  }

  struct Band {
    Value image, channel, block, first, from, planes, scratch;
  };

  void Expand(Kernel& k, const Band& band) {
    Ops& o = k.o;
    mlir::Type type = o.b.getF32Type();
    const int64_t width = plan_.depthwise.in[2], image = plan_.expand.in_elements();
    Value first_pixel = o.Mul(band.from, width);
    // Where the expanded image would begin whose rows and channels the task's planes are.
    Value origin = o.Add(o.Mul(band.first, width), o.Mul(band.channel, plan_.plane_elements()));
    origin = o.Sub(o.Int(0), origin);
    k.Computes(expand_);
    k.StoreAt(*expand_.stored(), o.At(band.planes, origin, type), {0, plan_.plane_elements(), 1});
    Epilogue store = StorePixels(k, *expand_.node, 1, true, band.image);
    GemmKernel g;
    g.plan = plan_.gemm;
    g.accumulator = type;
    g.inline_epilogue = inline_expand_;
    g.epilogue = [&](KernelBuilder& kb, Value, Value channel, Value pixel, Value sum) {
      store(kb, kb.Int(0), kb.Add(band.channel, channel), kb.Add(first_pixel, pixel), sum);
    };
    g.p.pointer = o.At(k.Pointer(expand_weights_), o.Mul(band.block, plan_.packed_expand_elements()), type);
    g.p.element = g.q.element = type;
    g.p.row_stride = 1;
    g.p.k_stride = plan_.gemm.mr;
    g.p.tile_stride = plan_.gemm.mr * plan_.gemm.k;
    Value x = o.At(k.Pointer(expand_.node->in(0)), o.Mul(band.image, plan_.expand.c * image), type);
    g.q.pointer = o.At(x, first_pixel, type);
    g.q.k_stride = image;
    // Panels of which the task needs no pixel are left out.
    Value begin = o.Int(0), end = o.Int(plan_.gemm.panels());
    if (!plan_.is_whole()) {
      const int64_t nr = plan_.gemm.nr();
      begin = o.Div(o.Mul(o.Max(o.Sub(band.first, band.from), o.Int(0)), width), nr);
      Value rows = o.Min(o.Int(plan_.in_rows), o.Sub(o.KernelBuilder::Add(band.first, plan_.in_rows), band.from));
      end = o.Div(o.KernelBuilder::Add(o.Mul(rows, width), nr - 1), nr);
    }
    EmitGemmTasks(o, g, begin, end, band.scratch);
  }

  // Rows of the planes that are padding.
  void ZeroPadding(Ops& o, Value first, Value planes) {
    mlir::Type type = o.b.getF32Type();
    const int64_t width = plan_.depthwise.in[2];
    Value above = o.Max(o.Int(0), o.Sub(o.Int(0), first));
    Value last = o.Min(o.Int(plan_.in_rows), o.Sub(o.Int(plan_.depthwise.in[1]), first));
    auto zero = [&](Value plane, Value begin, Value end) {
      o.For(o.Mul(begin, width), o.Mul(end, width), 1, [&](Value i) { o.Store(o.Zero(type), o.At(plane, i, type)); });
    };
    o.For(plan_.channels, [&](Value channel) {
      Value plane = o.At(planes, o.Mul(channel, plan_.plane_elements()), type);
      zero(plane, o.Int(0), above);
      zero(plane, last, o.Int(plan_.in_rows));
    });
  }

  FunctionEmitter& f_;
  const KernelPlan &depthwise_, &expand_;
  const DepthwiseBlockPlan plan_;
  const bool packs_depthwise_;  // its weights: else they are read as they are
  ShapeMap shapes_;
  bool inline_expand_ = false, inline_depthwise_ = false;
  Buffer expand_weights_, depthwise_weights_;
  int64_t block_weights_ = 0;
};

}  // namespace

void FuseDepthwiseBlocks(FunctionEmitter& f, std::vector<KernelPlan>* plans) {
  for (size_t i = 0; i < plans->size(); ++i) {
    KernelPlan& depthwise = (*plans)[i];
    if (!IsConvOfConstants(f, depthwise)) continue;
    const Tensor* x = &depthwise.node->in(0);
    auto expand =
        std::find_if(plans->begin(), plans->begin() + i, [&](const KernelPlan& plan) { return plan.stored() == x; });
    if (expand == plans->begin() + i || !IsConvOfConstants(f, *expand) || x->is_result) continue;
    const auto readers = std::count_if(plans->begin(), plans->end(), [&](const KernelPlan& plan) {
      return std::find(plan.reads.begin(), plan.reads.end(), x) != plan.reads.end();
    });
    if (readers != 1 || !TailsAreFlat(f, *expand, depthwise) || !PlanOf(f, *expand, depthwise)) continue;
    std::set<const Tensor*> reads(depthwise.reads.begin(), depthwise.reads.end());
    reads.insert(expand->reads.begin(), expand->reads.end());
    reads.erase(x);
    depthwise.reads.assign(reads.begin(), reads.end());
    depthwise.within = {*expand};
    plans->erase(expand);
    --i;
  }
}

void EmitDepthwiseBlock(FunctionEmitter& f, const KernelPlan& plan) { Block(f, plan).Emit(); }

}  // namespace inlay::native
