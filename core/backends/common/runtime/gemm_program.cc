#include "core/backends/common/runtime/gemm_program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

namespace inlay::backends {
namespace {

StepOp OpOf(const GemmStep& step) {
  static const auto* const kOps = new std::map<std::string, StepOp>{{"relu", StepOp::kRelu},
                                                                    {"leaky_relu", StepOp::kLeakyRelu},
                                                                    {"clip", StepOp::kClip},
                                                                    {"gelu", StepOp::kGelu},
                                                                    {"gelu_tanh", StepOp::kGeluTanh},
                                                                    {"silu", StepOp::kSilu},
                                                                    {"tanh", StepOp::kTanh},
                                                                    {"sigmoid", StepOp::kSigmoid},
                                                                    {"add", StepOp::kAdd},
                                                                    {"sub", StepOp::kSub},
                                                                    {"rsub", StepOp::kRsub},
                                                                    {"mul", StepOp::kMul},
                                                                    {"div", StepOp::kDiv}};
  auto found = kOps->find(step.op);
  if (found == kOps->end() || step.binary != (found->second >= StepOp::kAdd)) {
    throw std::runtime_error("no step '" + step.op + "'");
  }
  return found->second;
}

}  // namespace

struct GemmProgram::Call {
  const InlayCallContext& ctx;
  void* const* args;
  GemmMatrices matrices;
  GemmTiling tiling;
  int64_t row_tiles, column_tiles;
};

GemmProgram::GemmProgram(GemmDescription description, std::unique_ptr<GemmEngine> engine)
    : d_(std::move(description)), engine_(std::move(engine)) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto split = d_.options.find(kSplitFlops);
  const int64_t least = split == d_.options.end() ? kDefaultSplitFlops : split->second;
  is_split_ = d_.flops() >= static_cast<double>(least);
  for (const GemmStep& step : d_.steps) {
    const StepOp op = OpOf(step);
    const bool clip = op == StepOp::kClip;
    steps_.push_back({op, clip && !step.has_alpha ? -kInfinity : step.alpha,
                      clip && !step.has_beta ? kInfinity : step.beta, step.operand,
                      static_cast<float>(step.operand.number)});
  }
}

int64_t GemmProgram::BatchOffset(const GemmOperand& operand, int64_t product) const {
  int64_t offset = 0;
  for (size_t i = d_.batch.size(); i-- > 0;) {
    offset += product % d_.batch[i] * operand.batch_strides[i];
    product /= d_.batch[i];
  }
  return offset;
}

template <typename T>
void GemmProgram::RunSteps(const Call& call, int64_t product, const GemmTile& tile) const {
  auto* c = static_cast<T*>(call.args[d_.input_elements.size()]) + product * d_.m * d_.n;
  for (const Step& step : steps_) {
    StepTile<T> t{c + tile.row * d_.n + tile.column, tile.rows, tile.columns, d_.n, nullptr, 0, true};
    const GemmOperand& operand = step.operand;
    if (operand.input >= 0) {
      t.operand = static_cast<const T*>(call.args[operand.input]) + BatchOffset(operand, product) +
                  tile.row * operand.row_stride + tile.column * operand.column_stride;
      t.operand_row_stride = operand.row_stride;
      t.operand_is_column = operand.column_stride == 0;
    } else if constexpr (sizeof(T) == sizeof(float)) {
      t.operand = &step.number;
    } else {
      t.operand = &operand.number;
    }
    RunStep(step.op, static_cast<T>(step.alpha), static_cast<T>(step.beta), t);
  }
}

void GemmProgram::RunTiles(const Call& call, int64_t begin, int64_t end) const {
  const int64_t size = d_.dtype == "f64" ? 8 : 4;
  auto* c = static_cast<char*>(call.args[d_.input_elements.size()]);
  for (int64_t index = begin; index < end; ++index) {
    // Rows innermost: a panel of B stays in the cache for all of them.
    const int64_t product = index / (call.row_tiles * call.column_tiles);
    GemmTile tile;
    tile.row = index % call.row_tiles * call.tiling.rows;
    tile.rows = std::min(call.tiling.rows, d_.m - tile.row);
    tile.column = index / call.row_tiles % call.column_tiles * call.tiling.columns;
    tile.columns = std::min(call.tiling.columns, d_.n - tile.column);
    engine_->Multiply(static_cast<const char*>(call.matrices.a) + BatchOffset(d_.a, product) * size,
                      static_cast<const char*>(call.matrices.b) + BatchOffset(d_.b, product) * size,
                      c + product * d_.m * d_.n * size, tile);
    size == 8 ? RunSteps<double>(call, product, tile) : RunSteps<float>(call, product, tile);
  }
}

void GemmProgram::Run(const InlayCallContext& caller, void* const* args) const {
  InlayCallContext ctx = caller;
  if (!is_split_) ctx.num_threads = 1;
  Call call{ctx, args, {args[d_.a.input], args[d_.b.input]}, engine_->Tiling(ctx.num_threads), 0, 0};
  call.row_tiles = (d_.m + call.tiling.rows - 1) / call.tiling.rows;
  call.column_tiles = (d_.n + call.tiling.columns - 1) / call.tiling.columns;
  engine_->Prepare(ctx, &call.matrices);
  ForEach(ctx, d_.num_products() * call.row_tiles * call.column_tiles,
          [&](int64_t begin, int64_t end) { RunTiles(call, begin, end); });
}

}  // namespace inlay::backends
