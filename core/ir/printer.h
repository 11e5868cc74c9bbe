// The text form of IR, for people, logs and golden tests. Not parsed back.
//
//   @w0: f32[64, 3, 7, 7] "conv1.weight"
//
//   fn @main(%x: f32[1, 3, 224, 224]) {
//     %0: f32[1, 64, 112, 112] = conv(%x, @w0, strides=[2, 2], ...)  // conv1 (Conv)
//     %1: f32[1, 64, 112, 112] = add(%0, f32(0.5))
//     return %1
//   }
//
// Vars are numbered in order of definition, parameters keep their names; weights are numbered by first use and never
// shown by digest, so that the text of a model does not depend on its weights' values.
#ifndef INLAY_CORE_IR_PRINTER_H_
#define INLAY_CORE_IR_PRINTER_H_

#include <string>

#include "core/ir/ir_module.h"

namespace inlay::ir {

std::string Print(const IRModule& module);
std::string Print(const Function& function, const std::string& name = "main");

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_PRINTER_H_
