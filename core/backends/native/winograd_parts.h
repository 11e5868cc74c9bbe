// What blocks of Winograd's tiles are made of, wherever their tiles lie: winograd.h's, and those of images whose size
// is open (lowerings/open_winograd.cc).
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PARTS_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PARTS_H_

#include <vector>

#include "core/backends/native/gemm.h"
#include "core/backends/native/winograd_plan.h"
#include "core/backends/native/winograd_transforms.h"

namespace inlay::native {

// `transform` of each column, then of each row, of rows x columns elements of which (i, j) is get(i, j); row by row.
template <typename Get, typename Transform>
std::vector<mlir::Value> BothWays(const WinogradPlan& plan, int64_t rows, int64_t columns, const Get& get,
                                  const Transform& transform) {
  std::vector<std::vector<mlir::Value>> transformed;
  for (int64_t j = 0; j < columns; ++j) {
    std::vector<mlir::Value> column;
    for (int64_t i = 0; i < rows; ++i) column.push_back(get(i, j));
    transformed.push_back(transform(plan.rows, column));
  }
  std::vector<mlir::Value> result;
  for (size_t i = 0; i < transformed[0].size(); ++i) {
    std::vector<mlir::Value> row;
    for (int64_t j = 0; j < columns; ++j) row.push_back(transformed[j][i]);
    for (mlir::Value v : transform(plan.columns, row)) result.push_back(v);
  }
  return result;
}

// A vector of channels of a tile, from d in the planes, whose rows are `pitch` elements apart, to `to`, where that of
// tile 0 goes.
void EmitWinogradTile(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value d, const Extent& pitch, mlir::Value tile,
                      mlir::Value to);

// A vector of channels of a tile's products, the first at `from`, to its results, [row][column][lane]; rows `pitch`
// columns apart, columns `apart`.
void EmitWinogradResults(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value from, mlir::Value to,
                         mlir::Value pitch, int64_t apart);

struct PanelChannels {
  mlir::Value first, count;
};
// Of a panel's v-th vector.
PanelChannels ChannelsOf(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value panel, mlir::Value v);

// `length` pixels of a vector of channels, [pixel][lane], to the epilogue, which wants vectors of pixels. `square`:
// lanes^2 elements.
void EmitPixelRun(KernelBuilder& kb, int64_t lanes, mlir::Value results, mlir::Value length, mlir::Value image,
                  const PanelChannels& channels, mlir::Value pixel, const Epilogue& epilogue, mlir::Value square);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PARTS_H_
