// ProgramBuilder: makes a Program of a Description on the machine that will run it.
//
// Walks the steps in order. Each step's primitive is created with its layouts left open (steps.cc); the builder brings
// the arguments into the layouts that it chose, through reorders where they differ: at once, into memory of the state,
// for what is constant; as one more execution for the rest. A reordered value is kept for later steps. Results stay in
// the layout they were made in and are reordered only when they leave the partition.
//
// One use: construct, Build.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_BUILDER_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_BUILDER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backends/onednn/runtime/description_reader.h"
#include "core/backends/onednn/runtime/program.h"

namespace inlay::onednn {

class ProgramBuilder {
 public:
  // args: those of `_init`: data of the constant inputs only.
  ProgramBuilder(const ReadDescription& read, const InlayCallContext& ctx, void* const* args);

  // Throws dnnl::error, std::bad_alloc, std::runtime_error; messages name the step.
  std::unique_ptr<Program> Build();

 private:
  struct Argument {
    int number;             // oneDNN's
    View view;              // of which value
    dnnl::memory::desc md;  // the layout that the primitive wants
  };

  // steps.cc: creates the primitive of one step and adds its executions.
  void AddStep(const Step& step);
  void AddConvolution(const Step& step);
  void AddDeconvolution(const Step& step);
  void AddMatmul(const Step& step);
  void AddPooling(const Step& step, dnnl::algorithm algorithm);
  void AddReduceMean(const Step& step);
  void AddBinary(const Step& step);
  void AddEltwise(const Step& step);
  void AddSoftmax(const Step& step, dnnl::algorithm algorithm);
  void AddLayerNorm(const Step& step);
  void AddBatchNorm(const Step& step);
  void AddConcat(const Step& step);
  dnnl::primitive_attr AttrOf(const Step& step) const;

  // The layout a view is in already (for primitives that take any): a blocked one where the view is the value itself.
  dnnl::memory::desc CurrentLayout(const View& view);
  // Adds the execution: arguments, post-op operands, scratchpad, and the result in dst_md.
  void Execute(const Step& step, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
               const std::vector<Argument>& arguments, const dnnl::memory::desc& dst_md);

  // A tensor of the view in the layout, made by a reorder if need be.
  int Get(const View& view, const dnnl::memory::desc& md);
  int GetPlain(const View& view);
  int Reorder(int from, const dnnl::memory::desc& md);
  int Pack(const View& view, const dnnl::memory::desc& md);  // of a constant, now
  int CopyOfConstant(int value);
  int NewTensor(int storage, const dnnl::memory::desc& md);
  int NewStorage(Storage storage);
  int AddResult(const Step& step, const dnnl::memory::desc& md);
  void WriteOutputs(int value);
  // As they lie outside.
  dnnl::memory::desc InputLayout(int input) const;
  dnnl::memory::desc OutputLayout(int output) const;
  void AppendReorder(std::string label, int from, int to);
  void AddScratchpad(const dnnl::primitive_desc_base& pd, std::vector<std::pair<int, int>>* args);
  void Append(std::string label, dnnl::primitive primitive, std::vector<std::pair<int, int>> args);
  bool IsNatural(const View& view) const;
  const void* ConstantData(int value) const;
  void* AllocateState(int64_t bytes);

  const Description& description_;
  const char* literals_;
  const InlayCallContext& ctx_;
  void* const* args_;
  std::unique_ptr<Program> program_;
  std::vector<std::vector<int>> instances_;  // by value: tensors that hold it
  std::string label_;                        // of the step at hand
};

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_BUILDER_H_
