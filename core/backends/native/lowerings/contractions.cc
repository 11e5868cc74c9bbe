// Matmul, conv and conv_transpose on the kernels of gemm.h and conv.h: operands, packing, and the epilogue that stores.
#include <algorithm>
#include <array>

#include "core/backends/native/conv.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/windows.h"
#include "core/backends/native/packing.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

// Offset of a batch element of an operand whose batch axes broadcast to `batch_shape`.
BatchOffset OffsetOf(FunctionEmitter& f, std::vector<int64_t> operand_batch, std::vector<int64_t> batch_shape,
                     int64_t matrix_elements) {
  if (Product(operand_batch) == 1) return nullptr;
  operand_batch.insert(operand_batch.begin(), batch_shape.size() - operand_batch.size(), 1);
  return [&f, operand_batch, batch_shape, matrix_elements](KernelBuilder& kb, Value batch) {
    if (operand_batch == batch_shape) return kb.Mul(batch, matrix_elements);
    std::vector<int64_t> strides = RowMajorStrides(operand_batch);
    Indices at = Delinearise(f.ops(), batch, batch_shape);
    Value offset = kb.Int(0);
    for (size_t i = 0; i < at.size(); ++i) {
      if (operand_batch[i] != 1) offset = kb.Add(offset, kb.Mul(at[i].base, strides[i] * matrix_elements));
    }
    return offset;
  };
}

absl::Status Matmul(FunctionEmitter& f, const Node& n) {
  const Tensor &a = n.in(0), &b = n.in(1), &out = n.out();
  if (out.NumElements() == 0) return absl::OkStatus();
  bool vector_a = a.rank() == 1, vector_b = b.rank() == 1;
  bool ta = n.attrs->BoolOr("transpose_a", false), tb = n.attrs->BoolOr("transpose_b", false);
  std::vector<int64_t> as = a.shape, bs = b.shape;
  if (vector_a) as.insert(as.begin(), 1);
  if (vector_b) bs.push_back(1);
  int64_t a_rows = as[as.size() - 2], a_columns = as.back(), b_rows = bs[bs.size() - 2], b_columns = bs.back();
  int64_t m = ta ? a_columns : a_rows, k = ta ? a_rows : a_columns, cols = tb ? b_rows : b_columns;
  std::vector<int64_t> a_batch(as.begin(), as.end() - 2), b_batch(bs.begin(), bs.end() - 2);
  std::vector<int64_t> batch_shape(out.shape.begin(), out.shape.end() - (vector_a ? 0 : 1) - (vector_b ? 0 : 1));
  std::vector<int64_t> row_shape = {m};
  if (Product(b_batch) == 1 && !ta && !vector_a && Product(a_batch) == Product(batch_shape)) {
    // One matrix for all: rows of all batch elements are rows of one product.
    row_shape = batch_shape;
    row_shape.push_back(m);
    m *= Product(batch_shape);
    a_batch.clear();
    batch_shape.clear();
  }
  int64_t batch = Product(batch_shape);
  GemmTypes types(f, a.dtype);
  bool constant = f.IsConstantParam(b);
  ColumnSource source = ColumnSource::kPacked;
  // Reading rows of b where they lie costs little as long as each is read few times.
  if (!constant) source = !tb && m <= 16 ? ColumnSource::kDirect : ColumnSource::kOnTheFly;
  int64_t q_batch = Product(b_batch);
  GemmPlan plan = PlanGemm(VectorIsaOf(f.cpu()), source, types.accumulator_bytes, batch, m, cols, k);

  auto b_matrix = [&](Kernel& kernel) {
    StridedMatrix q;
    q.pointer = kernel.Pointer(b);
    q.element = types.Stored(f.ops());
    q.k_stride = tb ? 1 : b_columns;
    q.j_stride = tb ? b_columns : 1;
    return q;
  };
  Buffer packed;
  int64_t packed_matrix = plan.k * plan.packed_columns();
  if (constant) {
    packed = f.State(q_batch * packed_matrix * types.accumulator_bytes);
    f.ParallelEach(
        q_batch, 1e3,
        [&](Kernel& kernel, Value i) {
          StridedMatrix q = b_matrix(kernel);
          q.pointer = kernel.o.At(q.pointer, kernel.o.Mul(i, k * cols), q.element);
          mlir::Type acc = types.Accumulator(kernel.o);
          EmitPackColumns(kernel.o, plan, q, acc,
                          kernel.o.At(kernel.Pointer(packed), kernel.o.Mul(i, packed_matrix), acc));
        },
        Phase::kInit);
  }
  double cost = 2.0 * batch * m * cols * k / (4.0 * plan.lanes) / std::max<int64_t>(plan.tasks(), 1) + 50;
  EmitTasks(f, plan.tasks(), cost, plan.scratch_bytes(), [&](Kernel& kernel, Value begin, Value end, Value scratch) {
    GemmKernel gemm;
    gemm.plan = plan;
    gemm.accumulator = types.Accumulator(kernel.o);
    gemm.inline_epilogue = InlineEpilogue(f, n);
    gemm.p.pointer = kernel.Pointer(a);
    gemm.p.element = types.Stored(kernel.o);
    gemm.p.row_stride = ta ? 1 : a_columns;
    gemm.p.k_stride = ta ? a_columns : 1;
    gemm.p.batch_offset = OffsetOf(f, a_batch, batch_shape, a_rows * a_columns);
    gemm.q.batch_offset = OffsetOf(f, b_batch, batch_shape, constant ? packed_matrix : k * cols);
    if (constant) {
      gemm.q.pointer = kernel.Pointer(packed);
      gemm.q.element = gemm.accumulator;
    } else {
      gemm.q.pointer = kernel.Pointer(b);
      gemm.q.element = types.Stored(kernel.o);
      gemm.q.k_stride = b_columns;
    }
    gemm.q.pack = [&](KernelBuilder& kb, const PackRequest& r) {
      StridedMatrix q = b_matrix(kernel);
      BatchOffset batch_offset = gemm.q.batch_offset;
      Value at = kb.Add(kb.Mul(r.k_begin, q.k_stride), kb.Mul(kb.Mul(r.panel, plan.nr()), q.j_stride));
      if (batch_offset) at = kb.Add(at, batch_offset(kb, r.batch));
      q.pointer = kb.At(q.pointer, at, q.element);
      EmitPackBlock(kb, q, kb.Sub(r.k_end, r.k_begin), r.vectors, r.columns, plan.lanes, gemm.accumulator, r.to);
    };
    gemm.epilogue = [&](KernelBuilder&, Value batch_index, Value row, Value column, Value acc) {
      Indices at = Delinearise(kernel.o, batch_index, batch_shape);
      if (!vector_a) {
        for (const Index& i : Delinearise(kernel.o, row, row_shape)) at.push_back(i);
      }
      if (!vector_b) at.push_back(Index(column, Ops::Lanes(acc) == 1 ? 0 : 1));
      kernel.StoreResult(out, at, acc);
    };
    EmitGemmTasks(kernel.o, gemm, begin, end, scratch);
  });
  return absl::OkStatus();
}

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
  matmul.kernel = Matmul;
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
}

}  // namespace inlay::native
