// A roofline: cycles of arithmetic by kind of operator against bytes that move, and a call.
//
// The constants are what partitions of 29 models (timm, f32, batch 1 to 4) took on one core with AVX-512 (Zen 5,
// 2026-11-22; tests/analytic_plan_report.py shows estimate against measurement), divided by 0.57: there matrix products
// at their peak take 0.57 of what a core of 3 GHz would, and what counts is how kinds of operators, and backends,
// compare.
#include "core/backends/native/cost.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backends/native/cpu_features.h"
#include "core/backends/native/native_backend.h"
#include "core/ir/op_registry.h"
#include "core/ir/work.h"

namespace inlay::native {
namespace {

constexpr double kGigahertz = 3.0;
// Weights come from memory or L3, what a neighbour made mostly from L2.
constexpr double kConstantBytesPerMicro = 20e3, kBytesPerMicro = 40e3;
constexpr double kCallMicros = 0.1;

// Parts of the peak of two fused multiply-adds a cycle.
constexpr double kProduct = 0.8;
constexpr double kWindows = 0.7;  // convolutions of more than one tap, or strided: planes are copied
// Groups of at most so many input channels (kernels.md, "Few channels a group"): few steps of a tile, planes to pad.
constexpr struct {
  int64_t channels;
  double part;
} kGroups[] = {{1, 0.45}, {4, 0.50}, {8, 0.57}};
constexpr double kGrouped = 0.66;
constexpr double kDepthwise = 0.6;  // kernels.md, "Depthwise"
constexpr double kRecurrent = 0.4;
// Times as many products of bytes, of bf16; of AMX, as tiles are loaded and their sums stored.
constexpr double kByteDots = 4, kMatrixTiles = 10, kBrainTiles = 6;
// Times fewer cycles than a direct 3x3 convolution, of stride 1 and 2, and of groups; than a 2x2, 4x4 or 5x5 one; than
// one along an axis.
constexpr double kWinograd = 2.5, kStridedWinograd = 1.4, kGroupedWinograd = 1.6, kWinogradOfSquare = 2,
                 kWinogradOfLine = 1.6;

// Vectors' worth of arithmetic a cycle of what is not a contraction.
constexpr double kPointwise = 0.5;
constexpr double kRowOfPool = 12;  // cycles of a row of windows, beside its vectors

int64_t Extent(const ir::TensorType& type, int axis) {
  return axis < type.rank() && type.dims[axis].is_static() ? type.dims[axis].value() : 1;
}

enum class Kernel { kOther, kThree, kSquare, kLine };  // 3x3, 2x2 and up to 5x5, along one axis

Kernel KernelOf(const ir::TensorType& weights) {
  const int rank = weights.rank();
  int64_t taps = 1, longest = 1;
  for (int axis = 2; axis < rank; ++axis) {
    taps *= Extent(weights, axis);
    longest = std::max(longest, Extent(weights, axis));
  }
  constexpr int64_t kMostOfLine = 128;
  if (taps == longest) return taps > 1 && taps <= kMostOfLine ? Kernel::kLine : Kernel::kOther;
  const int64_t rows = Extent(weights, rank - 2), columns = Extent(weights, rank - 1);
  if (rows == 3 && columns == 3) return Kernel::kThree;
  return rank == 4 && rows == columns && rows <= 5 ? Kernel::kSquare : Kernel::kOther;
}

// Whether code generation will, most likely, take Winograd's way (winograd_plan.h) for a convolution of this stride
// and kernel.
bool IsLikelyWinograd(const ir::Binding& conv, int64_t stride, Kernel kernel = Kernel::kThree) {
  const ir::TensorType& weights = conv.args[1].tensor_type();
  const int rank = weights.rank();
  auto are = [&](const char* name, int64_t value) {
    const std::vector<int64_t> values = conv.attrs.IntsOr(name, std::vector<int64_t>(rank - 2, 1));
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  constexpr int64_t kChannels = 16;
  const int64_t groups = conv.attrs.IntOr("groups", 1), pixels = stride == 1 && groups == 1 ? 36 : 196;
  double phases = 1;  // images that a dilated one's are; not of a sequence
  for (int64_t dilation : conv.attrs.IntsOr("dilations", {})) phases *= rank > 3 ? static_cast<double>(dilation) : 1;
  if (phases > 1 && (stride > 1 || rank > 4)) return false;
  return weights.dtype == ir::DType::kF32 && KernelOf(weights) == kernel &&
         (stride == 1 || (rank == 4 && groups == 1)) && are("strides", stride) &&
         Extent(weights, 0) / groups >= kChannels && Extent(weights, 1) >= kChannels &&
         ir::CountElements(conv.var->type) >= phases * static_cast<double>(pixels * Extent(weights, 0));
}

// Whether it will, most likely, take a strided one as another of stride 1 (conv_phases.h).
bool IsLikelySplit(const ir::Binding& conv) {
  const ir::TensorType& weights = conv.args[1].tensor_type();
  const std::vector<int64_t> strides = conv.attrs.IntsOr("strides", {}), dilations = conv.attrs.IntsOr("dilations", {});
  constexpr int64_t kLeastTaps = 4, kMostTaps = 5, kInputs = 12, kOutputs = 16;
  if (weights.rank() > 4 || static_cast<int>(strides.size()) != weights.rank() - 2) return false;
  int64_t inputs = Extent(weights, 1);
  for (size_t i = 0; i < strides.size(); ++i) {
    const int64_t taps = Extent(weights, static_cast<int>(i) + 2);
    if (strides[i] < 2 || strides[i] >= taps || taps < kLeastTaps || taps > kMostTaps * strides[i]) return false;
    inputs *= strides[i];
  }
  return weights.dtype == ir::DType::kF32 && conv.attrs.IntOr("groups", 1) == 1 && inputs >= kInputs &&
         Extent(weights, 0) >= kOutputs &&
         std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; });
}

// The part of the core's peak that a convolution reaches.
double PartOfPeak(const ir::Binding& conv) {
  const ir::TensorType& weights = conv.args[1].tensor_type();
  double taps = 1;
  for (int axis = 2; axis < weights.rank(); ++axis) taps *= static_cast<double>(Extent(weights, axis));
  const int64_t groups = conv.attrs.IntOr("groups", 1);
  if (groups > 1 && Extent(weights, 1) == 1 && Extent(weights, 0) == groups) return kDepthwise;
  if (groups > 1) {
    for (const auto& group : kGroups) {
      if (Extent(weights, 1) <= group.channels) return group.part;
    }
    return IsLikelyWinograd(conv, 1) ? kGrouped * kGroupedWinograd : kGrouped;
  }
  if (IsLikelyWinograd(conv, 1)) return kProduct * kWinograd;
  if (IsLikelyWinograd(conv, 1, Kernel::kSquare)) return kProduct * kWinogradOfSquare;
  if (IsLikelyWinograd(conv, 1, Kernel::kLine)) return kProduct * kWinogradOfLine;
  if (IsLikelyWinograd(conv, 2) || IsLikelySplit(conv)) return kWindows * kStridedWinograd;
  const std::vector<int64_t> strides = conv.attrs.IntsOr("strides", {});
  const bool strided = std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride > 1; });
  return taps > 1 || strided ? kWindows : kProduct;
}

// Of RowPool: the other axes' taps of a row of the input, then the row's own, of whose windows a stride of 2 loads
// twice as many vectors and a larger one scalars.
double PoolCycles(const ir::Binding& call, double lanes) {
  const ir::TensorType &x = call.args[0].tensor_type(), &out = call.var->type.tensor();
  const std::vector<int64_t> kernel = call.attrs.Ints("kernel"), strides = call.attrs.IntsOr("strides", {1});
  double taps = 1;
  for (int64_t side : kernel) taps *= static_cast<double>(side);
  const double along = static_cast<double>(kernel.back()), columns = Extent(out, out.rank() - 1);
  const double windows = strides.back() > 2 ? columns : columns * strides.back() / lanes;
  const double row = Extent(x, x.rank() - 1) / lanes * taps / along + windows * along + kRowOfPool;
  return row * ir::CountElements(call.var->type) / columns;
}

double Cycles(const ir::Binding& call, double lanes, const CpuFeatures& cpu) {
  const double flops = FlopsOf(call), peak = lanes * 2 * 2;
  if (flops == 0) return 0;
  const std::string& op = call.callee;
  if (op == "matmul_integer" || op == "conv_integer") {
    return flops / (peak * kProduct * (cpu.matrix_tiles ? kMatrixTiles : cpu.byte_dots ? kByteDots : 1));
  }
  const bool of_brains = (op == "matmul" || op == "conv") && call.args[0].tensor_type().dtype == ir::DType::kBF16 &&
                         call.attrs.IntOr("groups", 1) == 1 && cpu.brain_tiles;
  if (of_brains) return flops / (peak * kProduct * kBrainTiles);
  if (op == "conv") return flops / (peak * PartOfPeak(call));
  if (op == "lstm" || op == "gru" || op == "rnn") return flops / (peak * kRecurrent);
  if (op == "max_pool" || op == "avg_pool") return PoolCycles(call, lanes);
  const ir::OpPattern pattern = ir::PatternOf(call);
  if (pattern == ir::OpPattern::kContraction) return flops / (peak * kProduct);
  // exp and its kin are counted as 20 operations each; fused multiply-adds do them in half as many.
  const bool series = pattern <= ir::OpPattern::kBroadcast && flops > ir::CountElements(call.var->type);
  return flops / (lanes * (series ? 2 * kPointwise : kPointwise));
}

double MemoryMicros(const ir::Function& partition) {
  const ir::Work work = ir::CountWork(partition, partition.attrs.IntsOr(backend::kConstantParams, {}));
  auto known = [](const ir::Dim& bytes) { return bytes.is_static() ? static_cast<double>(bytes.value()) : 0; };
  const double constants = known(work.constant_bytes), made = std::max(known(work.bytes) - constants, 0.0);
  return constants / kConstantBytesPerMicro + made / kBytesPerMicro;
}

}  // namespace

double EstimateMicros(const ir::Function& partition, const target::Target& target) {
  const double lanes = target.HasFeature("avx512f") ? 16 : target.HasFeature("avx2") ? 8 : 4;
  const CpuFeatures cpu = FeaturesOf(target);
  double cycles = 0;
  for (const ir::Binding& binding : partition.body.bindings) cycles += Cycles(binding, lanes, cpu);
  return std::max(cycles / (kGigahertz * 1e3), MemoryMicros(partition)) + kCallMicros;
}

}  // namespace inlay::native
