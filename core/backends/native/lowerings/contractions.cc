// Conv and conv_transpose on the kernels of conv.h: packing, padding, and the epilogue that stores. Registers matmul
// too.
#include <algorithm>

#include "core/backends/native/composites.h"
#include "core/backends/native/conv.h"
#include "core/backends/native/conv_phases.h"
#include "core/backends/native/conv_shape.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/views.h"
#include "core/backends/native/lowerings/word_products.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

// The tasks of a plan. Where the number of images is open, the plan is for one: its tasks for each of them, with
// `image` to say which; else that is null.
using ImageBody = std::function<void(Kernel&, Value begin, Value end, Value scratch, Value image)>;
void ForImages(FunctionEmitter& f, const Extent& images, int64_t tasks, double cost, int64_t scratch_bytes,
               const ImageBody& body) {
  if (images.is_static()) {
    EmitTasks(f, tasks, cost, scratch_bytes,
              [&](Kernel& k, Value begin, Value end, Value scratch) { body(k, begin, end, scratch, nullptr); });
    return;
  }
  EmitTasks(f, images * tasks, cost, scratch_bytes, [&](Kernel& k, Value begin, Value end, Value scratch) {
    k.o.For(begin, end, 1, [&](Value item) {
      Value task = k.o.Rem(item, tasks);
      body(k, task, k.o.Add(task, 1), scratch, k.o.Div(item, tasks));
    });
  });
}

// What is `bytes` for an image, for all of them.
Extent ForAll(const Extent& images, int64_t bytes) { return images.is_static() ? Extent(bytes) : images * bytes; }

// Where the image's part of it begins.
Value OfImage(Kernel& k, Value pointer, Value image, int64_t bytes) {
  return image ? k.o.At(pointer, k.o.Mul(image, bytes), k.o.b.getI8Type()) : pointer;
}

// The copy of the images that the plan wants; `bytes` long, or of each image where their number is open.
Buffer CopyOfInput(FunctionEmitter& f, const Extent& images, const ConvPlan& plan, const GemmTypes& types,
                   const ConvInput& input, int64_t bytes) {
  const int64_t image_bytes = plan.shape.c * plan.shape.in_elements() * input.element_bytes;
  const Buffer copy = f.Temporary(ForAll(images, bytes));
  const double elements = static_cast<double>(plan.shape.n * plan.shape.c * plan.plane_elements());
  ForImages(f, images, plan.copy_tasks(), elements / 4 / std::max<int64_t>(plan.copy_tasks(), 1), kNoScratch,
            [&](Kernel& k, Value begin, Value end, Value, Value image) {
              EmitPadInput(k.o, plan, OfImage(k, k.Pointer(input.buffer), image, image_bytes), input.elements(k.o),
                           types.Accumulator(k.o), begin, end, OfImage(k, k.Pointer(copy), image, bytes));
            });
  return copy;
}

// `x`: plan.shape's.
void Winograd(FunctionEmitter& f, const Node& n, const WinogradPlan& plan, const Buffer& x) {
  const Tensor& w = n.in(1);
  auto floats = [](int64_t elements) { return (elements + 64) * int64_t{sizeof(float)}; };
  Buffer weights = f.State(floats(plan.packed_weight_elements()));
  f.Parallel(
      1, 0, [&](Kernel& k, Value, Value) { EmitWinogradWeights(k.o, plan, k.Pointer(w), k.Pointer(weights)); },
      Phase::kInit);
  const Extent& images = n.in(0).dims[0];
  const int64_t image_bytes = plan.shape.c * plan.shape.in_elements() * int64_t{sizeof(float)};
  const int64_t planes_bytes = RoundUp(floats(plan.planes_elements()), kLineBytes);
  Buffer planes = f.Temporary(ForAll(images, planes_bytes));
  ForImages(f, images, plan.plane_line_items(), static_cast<double>(plan.plane_line_columns()) * 6, kNoScratch,
            [&](Kernel& k, Value begin, Value end, Value, Value image) {
              EmitWinogradPlanes(k.o, plan, OfImage(k, k.Pointer(x), image, image_bytes), begin, end,
                                 OfImage(k, k.Pointer(planes), image, planes_bytes));
            });
  const std::optional<FinerWinograd> finer = FinerBlocks(plan);
  int64_t transformed_elements = plan.shared_input_elements();
  if (finer.has_value()) transformed_elements = std::max(transformed_elements, finer->plan.shared_input_elements());
  const int64_t transformed_bytes = RoundUp(floats(transformed_elements), kLineBytes);
  Buffer transformed = transformed_elements > 0 ? f.Temporary(ForAll(images, transformed_bytes)) : planes;
  ShapeMap shapes;
  bool flat = FlatPixels(f, n, &shapes);
  auto multiply = [&](const WinogradPlan& plan) {
    const Buffer input = plan.fused ? planes : transformed;
    const int64_t input_bytes = plan.fused ? planes_bytes : transformed_bytes;
    if (!plan.fused) {
      ForImages(f, images, plan.transform_tasks(), static_cast<double>(plan.transform_tiles()) * plan.points() * 4,
                kNoScratch, [&](Kernel& k, Value begin, Value end, Value, Value image) {
                  EmitWinogradInput(k.o, plan, OfImage(k, k.Pointer(planes), image, planes_bytes), begin, end,
                                    OfImage(k, k.Pointer(input), image, input_bytes));
                });
    }
    ForImages(f, images, plan.tasks(), plan.cycles / plan.tasks(), plan.scratch_bytes(),
              [&](Kernel& k, Value begin, Value end, Value scratch, Value image) {
                k.shapes = shapes;
                WinogradKernel kernel{plan, OfImage(k, k.Pointer(input), image, input_bytes), k.Pointer(weights),
                                      StorePixels(k, n, 1, flat, image)};
                EmitWinogradTasks(k.o, kernel, begin, end, scratch);
              });
  };
  if (!finer.has_value()) return multiply(plan);
  f.Either({{std::nullopt, finer->threads, INT64_MAX}}, [&] { multiply(finer->plan); }, [&] { multiply(plan); });
}

absl::Status Convolution(FunctionEmitter& f, const Node& n, bool transposed) {
  if (n.out().IsEmpty()) return absl::OkStatus();
  const Shape& dims = n.in(0).dims;
  if (!IsStatic(Shape(dims.begin() + 2, dims.end()))) return EmitOpenConvolution(f, n);
  if (const auto products = transposed ? std::nullopt : ProductsOfConv(f, n)) {
    return EmitWordConvolution(f, n, *products);
  }
  const Core& core = f.cpu().core;
  const int64_t accumulator_bytes = GemmTypes(f, n.in(0).dtype).accumulator_bytes;
  ConvPlan plan = PlanConv(core, DepthAsRows(ConvShapeOf(n, transposed)), accumulator_bytes,
                           /*widened=*/ir::ByteSize(n.in(0).dtype) < accumulator_bytes);
  const GemmTypes types(f, n.in(0).dtype);
  ConvInput input{f.BufferOf(n.in(0)), ir::ByteSize(types.dtype),
                  [&](Ops& o) { return InputElements{types.Stored(o)}; }};
  // The planes of a strided one, which are those of `shape`.
  auto planes_of = [&](const ConvPlan& planes, const ConvShape& shape) {
    const int64_t bytes = shape.n * shape.c * shape.in_elements() * accumulator_bytes;
    return CopyOfInput(f, n.in(0).dims[0], planes, types, input, bytes);
  };
  // Transforming weights takes longer than Winograd gains: only those that are constant.
  if (n.in(0).dtype == ir::DType::kF32 && f.IsConstantParam(n.in(1))) {
    if (const auto winograd = ChooseWinograd(core, plan, f.winograd())) {
      const bool split = winograd->is_split();
      Winograd(f, n, *winograd, split ? planes_of(SplitByStride(plan)->planes, winograd->shape) : input.buffer);
      return absl::OkStatus();
    }
  }
  if (const std::optional<PatchPlan> patches = PlanPatches(core, plan)) {
    plan = patches->pointwise;
    input = {planes_of(patches->planes, plan.shape), accumulator_bytes,
             [&](Ops& o) { return InputElements{types.Accumulator(o)}; }};
  }
  CutForThreads(&plan);
  const Tensor& w = n.in(1);
  EmitDirectConv(f, n, plan, types, input, PackedWeights(f, f.BufferOf(w), f.IsConstantParam(w), plan, types));
  return absl::OkStatus();
}

}  // namespace

Buffer PackedWeights(FunctionEmitter& f, const Buffer& w, bool constant, const ConvPlan& plan, const GemmTypes& types) {
  if (plan.method == ConvMethod::kDepthwise) return w;
  const int64_t bytes = (plan.packed_weight_elements() + plan.lanes) * types.accumulator_bytes;
  const Buffer weights = constant ? f.State(bytes) : f.Temporary(bytes);
  f.Parallel(
      1, 0,
      [&](Kernel& k, Value, Value) {
        const mlir::Type packed = plan.widens_weights() ? types.Accumulator(k.o) : types.Stored(k.o);
        EmitPackConvWeights(k.o, plan, k.Pointer(w), types.Stored(k.o), packed, k.Pointer(weights));
      },
      constant ? Phase::kInit : Phase::kRun);
  return weights;
}

void EmitDirectConv(FunctionEmitter& f, const Node& n, const ConvPlan& plan, const GemmTypes& types,
                    const ConvInput& input, const Buffer& weights, const EmitConv& around) {
  const ConvShape& shape = plan.shape;
  const Extent& images = n.in(0).dims[0];
  int64_t input_bytes = shape.c * shape.in_elements() * input.element_bytes;
  Buffer planes = input.buffer;
  const bool padded = plan.padded_input;
  if (padded) {
    input_bytes = RoundUp((plan.padded_elements() + plan.lanes) * types.accumulator_bytes, kLineBytes);
    planes = CopyOfInput(f, images, plan, types, input, input_bytes);
  }
  ShapeMap shapes;
  bool flat = FlatPixels(f, n, &shapes);
  const double cost = plan.cycles / std::max<int64_t>(plan.tasks(), 1) + 50;
  auto emit = [&](Kernel& k, Value begin, Value end, Value scratch, Value image) {
    k.shapes = shapes;
    ConvKernel conv;
    conv.plan = plan;
    conv.accumulator = types.Accumulator(k.o);
    conv.input = OfImage(k, k.Pointer(planes), image, input_bytes);
    conv.input_elements = padded ? InputElements{conv.accumulator} : input.elements(k.o);
    conv.weights = k.Pointer(weights);
    conv.weight_element = plan.widens_weights() ? conv.accumulator : types.Stored(k.o);
    conv.inline_epilogue = flat && InlineEpilogue(f, n);
    conv.epilogue = StorePixels(k, n, shape.groups, flat, image);
    conv.ahead = PrefetchPixels(k, n, f.cpu().core, shape.groups, flat, image, plan.lanes, k.ResultBytes(n.out()));
    auto emit = [&] { EmitConvTasks(k.o, conv, begin, end, scratch); };
    around ? around(k, &conv, emit) : emit();
  };
  ForImages(f, images, plan.tasks(), cost, plan.scratch_bytes(), emit);
}

void RegisterContractions(LoweringTable* table) {
  Lowering& matmul = (*table)["matmul"];
  matmul.kernel = EmitMatmul;
  for (bool transposed : {false, true}) {
    Lowering& conv = (*table)[transposed ? "conv_transpose" : "conv"];
    conv.kernel = [transposed](FunctionEmitter& f, const Node& n) { return Convolution(f, n, transposed); };
  }
  (*table)["matmul_integer"].kernel = EmitIntegerMatmul;
  (*table)["conv_integer"].kernel = EmitIntegerConvolution;
  (*table)[kWordPixels].kernel = EmitWordPixels;
  (*table)["matmul_nbits"].kernel = EmitNbitsMatmul;
  (*table)["matmul_nbits"].arg_use = ArgUse::kMemory;
  Lowering& gather = (*table)["gather_matmul"];
  gather.kernel = EmitGatherMatmul;
  gather.arg_use_of = [](const Node& n, int arg) {
    return arg == 0 ? ArgUse::kOnce : arg == 2 || CanBeView(n.in(arg)) ? ArgUse::kMany : ArgUse::kMemory;
  };
  for (const char* name : {"gather_matmul", "matmul_integer", "matmul_nbits", "conv_integer", kWordPixels}) {
    Lowering& lowering = (*table)[name];
    lowering.cost = 100;
    lowering.epilogue = true;
  }
  // A transposition in front of it is one by itself, not of elements that lie far apart.
  (*table)[kWordPixels].arg_use = ArgUse::kMemory;
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
