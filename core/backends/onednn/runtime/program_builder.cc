#include "core/backends/onednn/runtime/program_builder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "core/backends/onednn/runtime/layout.h"

namespace inlay::onednn {

using dnnl::memory;

ProgramBuilder::ProgramBuilder(const ReadDescription& read, const InlayCallContext& ctx, void* const* args)
    : description_(read.description), literals_(read.literals), ctx_(ctx), args_(args) {}

std::unique_ptr<Program> ProgramBuilder::Build() {
  const int threads = std::max(1, ctx_.num_threads);
  ThreadScope scope(threads, threads);  // primitives split their work for the threads they see when they are made
  program_ = std::make_unique<Program>(threads);
  instances_.resize(description_.values.size());
  for (int i = 0; i < description_.num_inputs; ++i) {
    if (description_.values[i].constant) continue;
    int storage = NewStorage({Storage::Kind::kArgument, i});
    instances_[i].push_back(NewTensor(storage, InputLayout(i)));
  }
  for (size_t i = 0; i < description_.steps.size(); ++i) {
    const Step& step = description_.steps[i];
    label_ = "step " + std::to_string(i) + " (" + step.op + ")";
    try {
      AddStep(step);
      WriteOutputs(step.out.value);
    } catch (const dnnl::error& e) {
      throw dnnl::error(e.status, (label_ + ": " + e.what()).c_str());
    }
  }
  program_->workspace_bytes_ = PlanMemory(&program_->storages_);
  program_->use_callers_workspace_ = program_->workspace_bytes_ <= description_.workspace_bytes;
  program_->Return(program_->MakeContext());
  return std::move(program_);
}

int ProgramBuilder::NewStorage(Storage storage) {
  program_->storages_.push_back(storage);
  return static_cast<int>(program_->storages_.size()) - 1;
}

int ProgramBuilder::NewTensor(int storage, const memory::desc& md) {
  program_->tensors_.push_back({storage, md});
  return static_cast<int>(program_->tensors_.size()) - 1;
}

bool ProgramBuilder::IsNatural(const View& view) const {
  return view.strides.empty() && view.dims == description_.values[view.value].dims;
}

const void* ProgramBuilder::ConstantData(int value) const {
  const int64_t offset = description_.values[value].literal_offset;
  const void* data = offset >= 0 ? literals_ + offset : args_[value];
  if (data == nullptr) throw std::runtime_error(label_ + ": a constant input was not given to init");
  return data;
}

void* ProgramBuilder::AllocateState(int64_t bytes) {
  void* data = ctx_.alloc(ctx_.owner, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

// The plain bytes, kept: whoever loads the module may let go of what it gave to init.
int ProgramBuilder::CopyOfConstant(int value) {
  const memory::desc md = PlainLayout(description_.values[value].dims);
  for (int tensor : instances_[value]) {
    if (program_->tensors_[tensor].md == md) return tensor;
  }
  const int64_t bytes = static_cast<int64_t>(md.get_size());
  Storage storage{Storage::Kind::kState};
  storage.data = AllocateState(bytes);
  std::memcpy(storage.data, ConstantData(value), bytes);
  int tensor = NewTensor(NewStorage(storage), md);
  instances_[value].push_back(tensor);
  return tensor;
}

int ProgramBuilder::GetPlain(const View& view) {
  const memory::desc md = PlainLayout(view.dims, view.strides);
  auto& instances = instances_[view.value];
  for (int tensor : instances) {
    if (program_->tensors_[tensor].md == md) return tensor;
  }
  const View whole{view.value, description_.values[view.value].dims, {}};
  int dense;
  if (description_.values[view.value].constant) {
    dense = CopyOfConstant(view.value);
  } else {
    const memory::desc dense_md = PlainLayout(whole.dims);
    dense = -1;  // the value's own bytes, row-major
    for (int tensor : instances) {
      if (SamePlacement(program_->tensors_[tensor].md, dense_md)) dense = tensor;
    }
    if (dense < 0) dense = Reorder(instances.front(), dense_md);
    if (program_->tensors_[dense].md != dense_md) dense = NewTensor(program_->tensors_[dense].storage, dense_md);
    if (std::find(instances.begin(), instances.end(), dense) == instances.end()) instances.push_back(dense);
  }
  if (IsNatural(view)) return dense;
  int tensor = NewTensor(program_->tensors_[dense].storage, md);
  instances.push_back(tensor);
  return tensor;
}

int ProgramBuilder::Get(const View& view, const memory::desc& md) {
  auto& instances = instances_[view.value];
  for (int tensor : instances) {
    if (program_->tensors_[tensor].md == md) return tensor;
  }
  const memory::desc plain = PlainLayout(view.dims, view.strides);
  if (md == plain) return GetPlain(view);
  for (int tensor : instances) {
    if (!SamePlacement(program_->tensors_[tensor].md, md)) continue;
    instances.push_back(NewTensor(program_->tensors_[tensor].storage, md));
    return instances.back();
  }
  // What is constant is packed straight from the bytes that init was given: no plain copy is kept.
  int made;
  if (description_.values[view.value].constant) {
    made = Pack(view, md);
  } else {
    made = Reorder(IsNatural(view) ? instances.front() : GetPlain(view), md);
  }
  instances_[view.value].push_back(made);
  return made;
}

int ProgramBuilder::Reorder(int from, const memory::desc& md) {
  Storage storage;
  storage.bytes = static_cast<int64_t>(md.get_size());
  const int to = NewTensor(NewStorage(storage), md);
  AppendReorder(label_ + " reorder", from, to);
  return to;
}

void ProgramBuilder::AppendReorder(std::string label, int from, int to) {
  const dnnl::engine& engine = program_->engine_;
  const memory::desc from_md = program_->tensors_[from].md, to_md = program_->tensors_[to].md;
  std::vector<std::pair<int, int>> args{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  if (Transpose transpose; AsTranspose(from_md, to_md, &transpose)) {
    Append(std::move(label), dnnl::primitive(), std::move(args));
    program_->executions_.back().transpose = transpose;
    return;
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::reorder::primitive_desc pd(engine, from_md, engine, to_md, attr);
  AddScratchpad(pd, &args);
  Append(std::move(label), dnnl::reorder(pd), std::move(args));
}

void ProgramBuilder::AddScratchpad(const dnnl::primitive_desc_base& pd, std::vector<std::pair<int, int>>* args) {
  const memory::desc md = pd.scratchpad_desc();
  if (md.get_size() == 0) return;
  Storage scratch;
  scratch.bytes = static_cast<int64_t>(md.get_size());
  args->emplace_back(DNNL_ARG_SCRATCHPAD, NewTensor(NewStorage(scratch), md));
}

int ProgramBuilder::Pack(const View& view, const memory::desc& md) {
  Storage storage{Storage::Kind::kState};
  storage.data = AllocateState(static_cast<int64_t>(md.get_size()));
  const dnnl::engine& engine = program_->engine_;
  memory given(PlainLayout(view.dims, view.strides), engine, const_cast<void*>(ConstantData(view.value)));
  memory packed(md, engine, storage.data);
  dnnl::stream stream(engine);
  dnnl::reorder(given, packed).execute(stream, given, packed);
  stream.wait();
  return NewTensor(NewStorage(storage), md);
}

memory::desc ProgramBuilder::CurrentLayout(const View& view) {
  const auto& instances = instances_[view.value];
  if (!IsNatural(view) || instances.empty() || description_.values[view.value].constant) {
    return PlainLayout(view.dims, view.strides);
  }
  return program_->tensors_[instances.front()].md;
}

memory::desc ProgramBuilder::InputLayout(int input) const {
  const auto& last = description_.channels_last_inputs;
  const Dims& dims = description_.values[input].dims;
  return std::count(last.begin(), last.end(), input) > 0 ? ChannelsLastLayout(dims) : PlainLayout(dims);
}

memory::desc ProgramBuilder::OutputLayout(int output) const {
  const auto& last = description_.channels_last_outputs;
  const Dims& dims = description_.values[description_.outputs[output]].dims;
  return std::count(last.begin(), last.end(), output) > 0 ? ChannelsLastLayout(dims) : PlainLayout(dims);
}

int ProgramBuilder::AddResult(const Step& step, const memory::desc& md) {
  const int value = step.out.value;
  Storage storage;
  storage.bytes = static_cast<int64_t>(md.get_size());
  // Of other dims than its value it is row-major (below), as the value is then.
  const memory::desc made = IsNatural(step.out) ? md : PlainLayout(description_.values[value].dims);
  for (int output = 0; output < static_cast<int>(description_.outputs.size()); ++output) {
    if (description_.outputs[output] != value || !SamePlacement(made, OutputLayout(output))) continue;
    storage = {Storage::Kind::kArgument, description_.num_inputs + output};
    break;
  }
  const int tensor = NewTensor(NewStorage(storage), md);
  instances_[value].push_back(tensor);
  if (!IsNatural(step.out)) {
    if (!SamePlacement(md, PlainLayout(step.out.dims))) {
      throw std::runtime_error(label_ + ": a result of other dims than its value must be row-major");
    }
    // The value's own dims first: what CurrentLayout and Get start from.
    const memory::desc own = PlainLayout(description_.values[value].dims);
    instances_[value].insert(instances_[value].begin(), NewTensor(program_->tensors_[tensor].storage, own));
  }
  return tensor;
}

void ProgramBuilder::WriteOutputs(int value) {
  for (size_t i = 0; i < description_.outputs.size(); ++i) {
    if (description_.outputs[i] != value) continue;
    const int argument = description_.num_inputs + static_cast<int>(i);
    bool written = false;
    for (int tensor : instances_[value]) {
      const Storage& storage = program_->storages_[program_->tensors_[tensor].storage];
      written |= storage.kind == Storage::Kind::kArgument && storage.argument == argument;
    }
    if (written) continue;
    const int from = instances_[value].front();
    const int to = NewTensor(NewStorage({Storage::Kind::kArgument, argument}), OutputLayout(static_cast<int>(i)));
    AppendReorder(label_ + " output reorder", from, to);
  }
}

void ProgramBuilder::Append(std::string label, dnnl::primitive primitive, std::vector<std::pair<int, int>> args) {
  const int index = static_cast<int>(program_->executions_.size());
  for (auto [number, tensor] : args) {
    Storage& storage = program_->storages_[program_->tensors_[tensor].storage];
    if (storage.first < 0) storage.first = index;
    storage.last = index;
  }
  program_->executions_.push_back({std::move(label), std::move(primitive), std::move(args), {}});
}

void ProgramBuilder::Execute(const Step& step, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
                             const std::vector<Argument>& arguments, const memory::desc& dst_md) {
  std::vector<std::pair<int, int>> args;
  for (const Argument& argument : arguments) args.emplace_back(argument.number, Get(argument.view, argument.md));
  for (size_t i = 0; i < step.post_ops.size(); ++i) {
    const View& operand = step.post_ops[i].operand;
    if (operand.value < 0) continue;
    const int number = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1;
    args.emplace_back(number, Get(operand, pd.query_md(dnnl::query::exec_arg_md, number)));
  }
  args.emplace_back(DNNL_ARG_DST, AddResult(step, dst_md));
  AddScratchpad(pd, &args);
  Append(label_, std::move(primitive), std::move(args));
}

}  // namespace inlay::onednn
