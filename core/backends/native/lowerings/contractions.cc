// Conv and conv_transpose on the kernels of conv.h: packing, padding, and the epilogue that stores. Registers matmul
// too.
#include <algorithm>
#include <array>

#include "core/backends/native/conv.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/views.h"
#include "core/backends/native/lowerings/windows.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

// One to three spatial axes as three, the missing ones in front.
Spatial ThreeAxes(const std::vector<int64_t>& values, int64_t absent) {
  Spatial result = {absent, absent, absent};
  std::copy(values.begin(), values.end(), result.end() - values.size());
  return result;
}

absl::Status Convolution(FunctionEmitter& f, const Node& n, bool transposed) {
  const Tensor &x = n.in(0), &w = n.in(1), &out = n.out();
  if (out.NumElements() == 0) return absl::OkStatus();
  std::vector<int64_t> taps(w.shape.begin() + 2, w.shape.end());
  std::vector<int64_t> in(x.shape.begin() + 2, x.shape.end()), pixels(out.shape.begin() + 2, out.shape.end());
  Windows windows(*n.attrs, taps);
  int64_t groups = n.attrs->IntOr("groups", 1), channels = out.shape[1];
  ConvShape shape;
  if (transposed) {
    shape = TransposedConvShape(x.shape[0], x.shape[1], channels, groups, ThreeAxes(in, 1), ThreeAxes(taps, 1),
                                ThreeAxes(windows.strides, 1), ThreeAxes(windows.dilations, 1),
                                ThreeAxes(windows.pads_begin, 0), ThreeAxes(pixels, 1));
  } else {
    shape = {x.shape[0],
             x.shape[1],
             channels,
             groups,
             ThreeAxes(in, 1),
             ThreeAxes(taps, 1),
             ThreeAxes(windows.strides, 1),
             ThreeAxes(windows.dilations, 1),
             ThreeAxes(windows.pads_begin, 0),
             ThreeAxes(pixels, 1),
             {1, 1, 1}};
  }
  GemmTypes types(f, x.dtype);
  ConvPlan plan = PlanConv(VectorIsaOf(f.cpu()), shape, types.accumulator_bytes);

  // Weights in the layout of the tasks: once at load where they are constant, else by every call.
  Buffer weights = f.BufferOf(w);
  auto weight_type = [&](Ops& o) {
    return plan.method == ConvMethod::kPixelRows ? types.Accumulator(o) : types.Stored(o);
  };
  if (plan.method != ConvMethod::kDepthwise) {
    bool constant = f.IsConstantParam(w);
    int64_t bytes = (plan.packed_weight_elements() + plan.lanes) * types.accumulator_bytes;
    weights = constant ? f.State(bytes) : f.Temporary(bytes);
    f.Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          EmitPackConvWeights(k.o, plan, k.Pointer(w), types.Stored(k.o), weight_type(k.o), k.Pointer(weights));
        },
        constant ? Phase::kInit : Phase::kRun);
  }
  Buffer input = f.BufferOf(x);
  bool padded = plan.padded_input;
  if (padded) {
    input = f.Temporary((plan.padded_elements() + plan.lanes) * types.accumulator_bytes);
    f.Parallel(shape.n * shape.c, static_cast<double>(plan.plane_elements()) / 4,
               [&](Kernel& k, Value begin, Value end) {
                 EmitPadInput(k.o, plan, k.Pointer(x), types.Stored(k.o), types.Accumulator(k.o), begin, end,
                              k.Pointer(input));
               });
  }
  // The kernels number pixels through all spatial axes.
  std::map<const Tensor*, std::vector<int64_t>> shapes;
  bool flat = f.MergeDims(n, {1, 1, static_cast<int>(pixels.size())}, &shapes);
  if (!flat) shapes.clear();
  double flops = 2.0 * out.NumElements() * Product(taps) * (x.shape[1] / groups);
  double cost = flops / (4.0 * plan.lanes) / std::max<int64_t>(plan.tasks(), 1) + 50;
  EmitTasks(f, plan.tasks(), cost, plan.scratch_bytes(), [&](Kernel& k, Value begin, Value end, Value scratch) {
    k.shapes = shapes;
    ConvKernel conv;
    conv.plan = plan;
    conv.accumulator = types.Accumulator(k.o);
    conv.input = k.Pointer(input);
    conv.input_element = padded ? conv.accumulator : types.Stored(k.o);
    conv.weights = k.Pointer(weights);
    conv.weight_element = weight_type(k.o);
    conv.inline_epilogue = flat && InlineEpilogue(f, n);
    conv.epilogue = [&](KernelBuilder&, Value batch, Value row, Value column, Value acc) {
      Ops& o = k.o;
      Value image = o.Div(batch, groups);
      Value channel = o.Add(o.Mul(o.Rem(batch, groups), channels / groups), row);
      if (n.inputs.size() > 2) {
        Eval e(k, Ops::Lanes(acc));
        acc = o.AddF(acc, e.At(n.in(2), {channel}));
      }
      if (flat) {
        k.StoreResult(out, {image, channel, Index(column, Ops::Lanes(acc) == 1 ? 0 : 1)}, acc);
        return;
      }
      // A tail that broadcasts within the image: pixel by pixel.
      for (int64_t lane = 0; lane < Ops::Lanes(acc); ++lane) {
        Indices at = {image, channel};
        for (const Index& i : Delinearise(o, o.Add(column, lane), pixels)) at.push_back(i);
        k.StoreResult(out, at, o.Extract(acc, lane));
      }
    };
    EmitConvTasks(k.o, conv, begin, end, scratch);
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterContractions(LoweringTable* table) {
  Lowering& matmul = (*table)["matmul"];
  matmul.kernel = EmitMatmul;
  for (bool transposed : {false, true}) {
    Lowering& conv = (*table)[transposed ? "conv_transpose" : "conv"];
    conv.kernel = [transposed](FunctionEmitter& f, const Node& n) { return Convolution(f, n, transposed); };
  }
  for (const char* name : {"matmul", "conv", "conv_transpose"}) {
    Lowering& lowering = (*table)[name];
    lowering.cost = 100;
    lowering.epilogue = true;
    lowering.arg_use_of = [](const Node&, int arg) { return arg == 2 ? ArgUse::kMany : ArgUse::kMemory; };
  }
  // A matmul takes its operands where they lie, heads transposed or sliced as they may be.
  matmul.arg_use_of = [](const Node& n, int arg) { return CanBeView(n.in(arg)) ? ArgUse::kMany : ArgUse::kMemory; };
}

}  // namespace inlay::native
