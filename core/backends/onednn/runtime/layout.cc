#include "core/backends/onednn/runtime/layout.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace inlay::onednn {
namespace {

using dnnl::memory;

// A loop over `extent` elements of one dim.
struct Loop {
  int dim;
  int64_t extent, stride;
  bool operator==(const Loop& other) const {
    return std::tie(dim, extent, stride) == std::tie(other.dim, other.extent, other.stride);
  }
};

// Every loop of the layout, those over one element left out, neighbours of one dim joined; by dim, outer first.
std::vector<Loop> LoopsOf(const memory::desc& md) {
  const auto padded = md.get_padded_dims();
  const auto strides = md.get_strides();
  const auto blocks = md.get_inner_blks(), block_dims = md.get_inner_idxs();
  std::vector<int64_t> inner(padded.size(), 1);
  std::vector<Loop> loops;
  int64_t stride = 1;
  for (int i = static_cast<int>(blocks.size()) - 1; i >= 0; --i) {
    loops.push_back({static_cast<int>(block_dims[i]), blocks[i], stride});
    stride *= blocks[i];
    inner[block_dims[i]] *= blocks[i];
  }
  for (size_t dim = 0; dim < padded.size(); ++dim) {
    loops.push_back({static_cast<int>(dim), padded[dim] / inner[dim], strides[dim]});
  }
  loops.erase(std::remove_if(loops.begin(), loops.end(), [](const Loop& l) { return l.extent == 1; }), loops.end());
  std::stable_sort(loops.begin(), loops.end(),
                   [](const Loop& a, const Loop& b) { return a.dim != b.dim ? a.dim < b.dim : a.stride > b.stride; });
  std::vector<Loop> joined;
  for (const Loop& loop : loops) {
    if (!joined.empty() && joined.back().dim == loop.dim && joined.back().stride == loop.extent * loop.stride) {
      joined.back().extent *= loop.extent;
      joined.back().stride = loop.stride;
    } else {
      joined.push_back(loop);
    }
  }
  return joined;
}

}  // namespace

memory::desc PlainLayout(const Dims& dims, const Dims& strides) {
  if (dims.empty()) return memory::desc({1}, memory::data_type::f32, memory::dims{1});
  memory::dims row_major(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) row_major[i] = row_major[i + 1] * dims[i + 1];
  return memory::desc(dims, memory::data_type::f32, strides.empty() ? row_major : strides);
}

memory::desc ChannelsLastLayout(const Dims& dims) {
  memory::dims strides(dims.size(), 1);
  int64_t stride = dims[1];
  for (size_t i = dims.size() - 1; i > 1; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return memory::desc(dims, memory::data_type::f32, strides);
}

memory::desc AnyLayout(const Dims& dims) {
  return memory::desc(dims.empty() ? Dims{1} : dims, memory::data_type::f32, memory::format_tag::any);
}

bool SamePlacement(const memory::desc& a, const memory::desc& b) {
  if (a == b) return true;
  if (a.get_dims() != b.get_dims() || a.get_data_type() != b.get_data_type()) return false;
  if (a.get_format_kind() != memory::format_kind::blocked || b.get_format_kind() != memory::format_kind::blocked) {
    return false;
  }
  // A padded layout has bytes that the other lacks.
  if (a.get_padded_dims() != a.get_dims() || b.get_padded_dims() != b.get_dims()) return false;
  return a.get_submemory_offset() == 0 && b.get_submemory_offset() == 0 && LoopsOf(a) == LoopsOf(b);
}

}  // namespace inlay::onednn
