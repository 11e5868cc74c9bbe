#include "core/backends/native/conv_plan.h"

#include <algorithm>

namespace inlay::native {

namespace {

// Few output channels leave a tile one vector, which only many rows keep busy: up to what the registers hold.
constexpr int64_t kMinPixelTile = 4;

// Rows of a tile must be consecutive pixels of one image row, or whole image rows.
bool IsPixelTile(const ConvShape& s, int64_t mr) {
  if (s.out[2] % mr == 0) return true;
  return s.out[0] == 1 && mr % s.out[2] == 0 && mr / s.out[2] <= s.out[1];
}

// What transposing the accumulators costs beside the tiles, and packing pixels: measured on Zen 5.
double TransposedCycles(const GemmPlan& plan) {
  int64_t square = plan.lanes * plan.lanes;
  double squares = static_cast<double>(plan.m / plan.lanes) * plan.packed_columns() / plan.lanes;
  double scalars = static_cast<double>(plan.m % plan.lanes) * plan.n;
  return EstimateCycles(plan) + plan.batch * (squares * square * 0.6 + scalars * 4);
}

double PanelCycles(const ConvPlan& plan) {
  const GemmPlan& g = plan.gemm;
  double cycles = EstimateCycles(g);
  if (plan.method != ConvMethod::kPanels) return cycles;
  double pieces = plan.shape.out[2] % g.lanes == 0 ? 1 : (g.lanes - 2.0) / plan.shape.out[2] + 2;
  return cycles + g.batch * g.row_blocks() * (g.packed_columns() / g.lanes) * g.k * (0.5 + 0.75 * pieces);
}

}  // namespace

// A band and its results should stay in L2 beside what else a task touches.
static constexpr int64_t kBandBytes = 128 << 10;

ConvShape TransposedConvShape(int64_t n, int64_t c, int64_t m, int64_t groups, const Spatial& in, const Spatial& kernel,
                              const Spatial& stride, const Spatial& dilation, const Spatial& pad, const Spatial& out) {
  ConvShape s;
  s.n = n;
  s.c = c;
  s.m = m;
  s.groups = groups;
  s.in = in;
  s.kernel = kernel;
  s.dilation = dilation;
  s.out = out;
  s.input_dilation = stride;
  s.reversed = true;
  for (int d = 0; d < 3; ++d) s.pad[d] = (kernel[d] - 1) * dilation[d] - pad[d];
  return s;
}

// Output rows whose sums stay in registers while the input's rows go by once; 0 where rows need a padded copy.
int64_t DepthwiseBlockRows(const VectorIsa& isa, const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const Spatial ones{1, 1, 1};
  const bool fits = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.dilation == ones &&
                    s.input_dilation == ones && s.stride[1] == s.stride[2] && s.stride[2] <= 2 &&
                    s.taps() <= kMaxDepthwiseTaps;
  if (!fits) return 0;
  const int64_t most = isa.registers >= 32 ? 8 : 4;
  auto cost = [&](int64_t rows) {
    const int64_t loaded = (rows - 1) * s.stride[1] + s.kernel[1];
    const int64_t tail = rows * s.out[2] % plan.lanes;  // pixels one by one
    return static_cast<double>((s.out[1] + rows - 1) / rows) * (loaded * s.kernel[2] + tail);
  };
  int64_t best = 1;
  for (int64_t rows = 2; rows <= std::min(most, s.out[1]); ++rows) {
    if (cost(rows) < cost(best)) best = rows;
  }
  return best;
}

ConvPlan PlanConv(const VectorIsa& isa, const ConvShape& shape, int64_t element_bytes) {
  ConvPlan plan;
  plan.shape = shape;
  plan.lanes = isa.vector_bytes / element_bytes;
  plan.gemm.lanes = plan.lanes;
  plan.gemm.element_bytes = element_bytes;
  const Spatial ones{1, 1, 1}, zeros{0, 0, 0};
  bool dense = shape.stride == ones && shape.input_dilation == ones && shape.pad == zeros && shape.in == shape.out;
  for (int d = 0; d < 3; ++d) {
    plan.phases[d] = shape.kernel[d] == 1 ? 1 : shape.stride[d];
  }
  plan.SetPadded(shape.out[1]);
  if (shape.groups == shape.c && shape.c > 1) {
    plan.method = ConvMethod::kDepthwise;
    plan.block_rows = DepthwiseBlockRows(isa, plan);
    if (plan.block_rows > 0 && plan.scratch_bytes() <= kMaxScratchBytes) return plan;
    plan.block_rows = 0;
    plan.band = shape.out[1];
    bool divisible = shape.out[0] == 1 && shape.input_dilation == ones;
    while (divisible && plan.band > 1 && plan.scratch_bytes() > kBandBytes) {
      plan.band = (plan.band + 1) / 2;
      plan.SetPadded(plan.band);
    }
    // Else a contraction with as many rows as a channel makes: slow, and rare.
    if (plan.scratch_bytes() <= kMaxScratchBytes) return plan;
    plan.SetPadded(shape.out[1]);
  }
  bool pointwise = shape.taps() == 1 && dense;
  plan.method = pointwise ? ConvMethod::kPointwise : ConvMethod::kPanels;
  plan.padded_input = !pointwise;
  ColumnSource source = plan.method == ConvMethod::kPointwise ? ColumnSource::kDirect : ColumnSource::kOnTheFly;
  int64_t channels = shape.c / shape.groups;
  plan.gemm = PlanGemm(isa, source, element_bytes, shape.n * shape.groups, shape.m / shape.groups, shape.pixels(),
                       channels * shape.taps());
  // A block of k is whole channels, so that the packer's loops are over channels and taps.
  auto whole_channels = [&](int64_t kc) {
    return std::min((kc + shape.taps() - 1) / shape.taps(), channels) * shape.taps();
  };
  plan.gemm.kc = whole_channels(plan.gemm.kc);
  plan.cycles = PanelCycles(plan);
  if (shape.reversed) return plan;
  auto consider = [&](int64_t mr) {
    GemmPlan rows = PlanTransposedGemm(isa, element_bytes, shape.n * shape.groups, shape.pixels(),
                                       shape.m / shape.groups, channels * shape.taps(), mr);
    rows.kc = whole_channels(rows.kc);
    double cycles = TransposedCycles(rows);
    // Ties go to the smaller tile: less code, and no slower.
    double most = plan.method == ConvMethod::kPixelRows ? 0.99 * plan.cycles : plan.cycles;
    if (cycles >= most) return;
    plan.method = ConvMethod::kPixelRows;
    plan.gemm = rows;
    plan.cycles = cycles;
  };
  if (shape.taps() == 1) {
    consider(0);
    return plan;
  }
  for (int64_t mr = kMinPixelTile; mr + 2 <= isa.registers; ++mr) {
    if (IsPixelTile(shape, mr)) consider(mr);
  }
  return plan;
}

void ConvPlan::SetPadded(int64_t out_rows) {
  for (int d = 0; d < 3; ++d) {
    int64_t out = d == 1 ? out_rows : shape.out[d];
    padded[d] = out + (shape.kernel[d] - 1) * shape.dilation[d] / shape.stride[d];
  }
}

int64_t ConvPlan::slack_elements() const {
  // A vector of the last panel may start at the last row and end lanes rows further down.
  return (lanes / shape.out[2] + 2 + gemm.nv * lanes / shape.out[2]) * padded[2] + padded[1] * padded[2] + lanes;
}

int64_t ConvPlan::padded_elements() const {
  if (method != ConvMethod::kDepthwise && !padded_input) return 0;
  return (method == ConvMethod::kDepthwise ? 1 : shape.n * shape.c) * plane_elements() + slack_elements();
}

int64_t ConvPlan::tasks() const { return method == ConvMethod::kDepthwise ? shape.n * shape.c : gemm.tasks(); }

int64_t ConvPlan::packed_weight_elements() const {
  if (method == ConvMethod::kDepthwise) return 0;
  if (method == ConvMethod::kPixelRows) return shape.groups * gemm.k * gemm.packed_columns();
  int64_t rows = shape.m / shape.groups;
  return shape.groups * ((rows + gemm.mr - 1) / gemm.mr * gemm.mr) * gemm.k;
}

int64_t ConvPlan::scratch_bytes() const {
  if (method != ConvMethod::kDepthwise) return gemm.scratch_bytes();
  if (block_rows > 0) return (zero_row_elements() + block_rows * shape.out[2] + lanes) * gemm.element_bytes;
  // The padded plane, then the results in rows as wide as the padded ones.
  int64_t results = shape.out[0] * band * padded[2] + 2 * lanes + slack_elements();
  int64_t accumulator_bytes = gemm.element_bytes;
  return (padded_elements() + results + 32) * accumulator_bytes;
}

}  // namespace inlay::native
