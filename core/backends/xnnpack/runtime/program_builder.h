// ProgramBuilder: makes a Program of a Description on the machine that will run it: creates the operators, which packs
// their weights, and runs the steps whose results are constant.
//
// One use: construct, Build.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_BUILDER_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_BUILDER_H_

#include <memory>
#include <vector>

#include "core/backends/xnnpack/runtime/description_reader.h"
#include "core/backends/xnnpack/runtime/program.h"

namespace inlay::xnnpack {

class ProgramBuilder {
 public:
  // args: those of `_init`: data of the constant inputs only.
  ProgramBuilder(const ReadDescription& read, const InlayCallContext& ctx, void* const* args);

  // Throws LibraryError, std::bad_alloc, std::runtime_error.
  std::unique_ptr<Program> Build();

 private:
  std::unique_ptr<Execution> MakeExecution(const Step& step, int index, int num_threads);
  // Of a constant: what init was given, a literal, or what a step made.
  const float* ConstantData(int value) const;
  // A constant that steps read at run time: copied into memory of the state, with room to read beyond.
  float* KeptConstant(int value);
  float* AllocateState(int value);
  Location LocationOf(int value);

  const Description& description_;
  const char* literals_;
  const InlayCallContext& ctx_;
  void* const* args_;
  std::vector<float*> kept_;  // by value
};

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_BUILDER_H_
