#include "core/backends/xnnpack/runtime/program_builder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace inlay::xnnpack {

ProgramBuilder::ProgramBuilder(const ReadDescription& read, const InlayCallContext& ctx, void* const* args)
    : description_(read.description),
      literals_(read.literals),
      ctx_(ctx),
      args_(args),
      kept_(read.description.values.size(), nullptr) {}

std::unique_ptr<Program> ProgramBuilder::Build() {
  ThrowIfError(xnn_initialize(nullptr), "initialize");
  auto program = std::make_unique<Program>();
  program->workspace_bytes_ = description_.workspace_bytes;
  InlayCallContext alone = ctx_;
  alone.num_threads = 1;
  for (size_t i = 0; i < description_.steps.size(); ++i) {
    const Step& step = description_.steps[i];
    const bool now = description_.values[step.out].constant;
    auto execution = MakeExecution(step, static_cast<int>(i), now ? 1 : std::max(1, ctx_.num_threads));
    if (now) {
      RunExecution(execution.get(), alone, nullptr);
    } else {
      program->executions_.push_back(std::move(execution));
    }
  }
  return program;
}

std::unique_ptr<Execution> ProgramBuilder::MakeExecution(const Step& step, int index, int num_threads) {
  auto execution = std::make_unique<Execution>();
  execution->label = "step " + std::to_string(index) + " (" + step.op + ")";
  const bool packs = step.op == "conv" || step.op == "deconv" || step.op == "fully_connected";
  std::vector<const float*> constants;
  for (size_t i = 0; i < step.args.size(); ++i) {
    const bool packed = packs && i > 0;
    constants.push_back(packed ? ConstantData(step.args[i]) : nullptr);
    execution->args.push_back(packed ? Location() : LocationOf(step.args[i]));
  }
  execution->out = LocationOf(step.out);
  if (step.op == "transpose") {
    execution->transpose = {step.batch, step.rows, step.channels};
    return execution;
  }
  execution->pieces = MakePieces(step, description_, constants, num_threads);
  // XNNPACK's buffers of pointers are made by the first setup: now, with any addresses.
  alignas(64) static float anywhere[16];
  for (const Piece& piece : execution->pieces) {
    ThrowIfError(piece.setup(piece.op.get(), anywhere, anywhere, anywhere), execution->label.c_str());
  }
  return execution;
}

const float* ProgramBuilder::ConstantData(int value) const {
  const Value& v = description_.values[value];
  const void* data = v.literal_offset >= 0             ? literals_ + v.literal_offset
                     : value < description_.num_inputs ? args_[value]
                                                       : kept_[value];
  if (data == nullptr) throw std::runtime_error("xnnpack: a constant input was not given to init");
  return static_cast<const float*>(data);
}

float* ProgramBuilder::AllocateState(int value) {
  void* data = ctx_.alloc(ctx_.owner, BytesWithExtra(description_.values[value]));
  if (data == nullptr) throw std::bad_alloc();
  kept_[value] = static_cast<float*>(data);
  return kept_[value];
}

float* ProgramBuilder::KeptConstant(int value) {
  if (kept_[value] != nullptr) return kept_[value];
  const Value& v = description_.values[value];
  const bool made = v.literal_offset < 0 && value >= description_.num_inputs;  // by the step at hand
  const float* data = made ? nullptr : ConstantData(value);
  float* kept = AllocateState(value);
  if (data != nullptr) std::memcpy(kept, data, v.elements * sizeof(float));
  return kept;
}

Location ProgramBuilder::LocationOf(int value) {
  const Value& v = description_.values[value];
  Location location;
  if (v.constant) {
    location.kind = Location::Kind::kState;
    location.data = KeptConstant(value);
  } else if (value < description_.num_inputs || v.output >= 0) {
    location.kind = Location::Kind::kArgument;
    location.argument = v.output >= 0 ? description_.num_inputs + v.output : value;
  } else {
    location.kind = Location::Kind::kWorkspace;
    location.offset = v.offset;
  }
  return location;
}

}  // namespace inlay::xnnpack
