// The register tile: rows x vectors accumulators that stay in registers over a loop on k.
#ifndef INLAY_CORE_BACKENDS_NATIVE_MICROKERNEL_H_
#define INLAY_CORE_BACKENDS_NATIVE_MICROKERNEL_H_

#include <functional>
#include <vector>

#include "core/backends/native/kernel_builder.h"

namespace inlay::native {

// sum + p * q, of vectors; p is an element of P in all lanes. Unless given, KernelBuilder::MultiplyAdd.
using MultiplyAdd = std::function<mlir::Value(KernelBuilder&, mlir::Value p, mlir::Value q, mlir::Value sum)>;

struct InnerLoop {
  int64_t extent;
  std::function<mlir::Value(KernelBuilder&, mlir::Value i)> offset;  // of iteration i, in elements
  // Unless null: the iterations [first, last) that are computed, of a loop that is not the innermost.
  mlir::Value first = {}, last = {};
};

struct RegisterTile {
  int64_t rows = 8, vectors = 2, lanes = 16;
  mlir::Type accumulator;
  MultiplyAdd multiply_add;
  // P's element (r, k) is at p + r * p_row_stride + k * p_k_stride, one scalar of type p_element. Unless empty,
  // p_rows[r] stands in place of r * p_row_stride.
  mlir::Value p;
  mlir::Type p_element;
  int64_t p_row_stride = 0, p_k_stride = 1;
  std::vector<int64_t> p_rows;
  // Unless empty: where each row's k = 0 lies, in place of p and what is added to it for a row.
  std::vector<mlir::Value> p_row_pointers;
  // Where k runs over several loops of P (channel, then taps), or of Q: those within a step of the outermost.
  std::vector<InnerLoop> inner;
  bool inner_of_q = false;
  // Q's row k is at q + k * q_k_stride; of its vectors * lanes columns, the first q_columns may be read.
  mlir::Value q;
  mlir::Type q_element;
  int64_t q_k_stride = 0, q_columns = 0;
  // Unless null: Q's rows, as accumulators, are stored there too, one after the other.
  mlir::Value copy;
  // Unless null: step k asks for the cache lines from prefetch + k * prefetch_step bytes on; where those that are
  // unrolled ask for one line, the first of them.
  mlir::Value prefetch, prefetch_step;
  int64_t prefetch_lines = 1;
  int64_t ask_every = 1;  // steps, of those that are unrolled
  // Lines that the tile asks for in order while it is computed, a few at a time: more than a core has fill buffers for
  // would wait for each other, and the multiply-adds for them.
  int64_t lines_ahead = 0;
  std::function<void(KernelBuilder&, mlir::Value line)> ask;
  // Unless null: an element of P that another tile meets; step k asks for the line of what lies k * next_p_step
  // further, unless an unrolled step before it has.
  mlir::Value next_p;
  int64_t next_p_step = 0;
  // x86: a row's element is loaded when the row before is done with.
  bool few_registers = false;
  // Steps of the outermost loop that share its counter; divides the number of steps.
  int64_t unrolled = 1;
};

// What each of so many tiles asks for of every row of the panel that follows theirs, of `row_bytes`, so that it has
// come when its first tile needs it: bytes, 1 at least.
mlir::Value ShareOfRow(KernelBuilder& kb, int64_t row_bytes, mlir::Value tiles);

// accumulators (row-major, rows x vectors) += P * Q for steps [begin, end) of the outermost loop on k; q and p point at
// k = 0. The rows of Q (with inner_of_q, the elements of P) follow each other in the order of the loops.
std::vector<mlir::Value> EmitRegisterTile(KernelBuilder& kb, const RegisterTile& tile, mlir::Value begin,
                                          mlir::Value end, const std::vector<mlir::Value>& accumulators);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_MICROKERNEL_H_
