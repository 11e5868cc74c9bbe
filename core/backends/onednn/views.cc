#include "core/backends/onednn/views.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace inlay::onednn {
namespace {

int64_t Product(Dims::const_iterator begin, Dims::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

Dims AlignRank(Dims dims, size_t rank) {
  if (dims.size() < rank) dims.insert(dims.begin(), rank - dims.size(), 1);
  return dims;
}

absl::optional<Dims> RegroupBroadcast(const Dims& own, const Dims& seen, const Dims& operand) {
  if (own == seen) return operand;
  Dims result;
  size_t i = 0, j = 0;
  while (i < own.size() || j < seen.size()) {
    // The smallest groups of axes from here on with as many elements on both sides.
    size_t i_end = i, j_end = j;
    int64_t own_product = 1, seen_product = 1;
    do {
      if (own_product <= seen_product && i_end < own.size()) {
        own_product *= own[i_end++];
      } else if (j_end < seen.size()) {
        seen_product *= seen[j_end++];
      } else if (i_end < own.size()) {
        own_product *= own[i_end++];
      } else {
        return absl::nullopt;
      }
    } while (own_product != seen_product);
    const int64_t elements = Product(operand.begin() + i, operand.begin() + i_end);
    if (elements != 1 && elements != own_product) return absl::nullopt;
    for (; j < j_end; ++j) result.push_back(elements == 1 ? 1 : seen[j]);
    i = i_end;
  }
  return result;
}

bool IsFastBroadcast(const Dims& operand, const Dims& out, bool channel_is_last) {
  const int64_t elements = Product(operand.begin(), operand.end());
  if (elements == 1) return true;
  // It takes the only channel of a sequence [N, 1, W] for a broadcast over the channels, of a number a column.
  if (!channel_is_last && out.size() == 3 && out[1] == 1) return false;
  if (operand == out) return true;
  const size_t channel = channel_is_last ? out.size() - 1 : 1;
  return out.size() > 1 && elements == out[channel] && operand[channel] == out[channel];
}

MatmulViews ViewsOfMatmul(Dims a, Dims b, bool transpose_a, bool transpose_b) {
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  MatmulViews views;
  const bool one_b = Product(b.begin(), b.end() - 2) == 1;
  if (one_b) b.erase(b.begin(), b.end() - 2);
  if (one_b && !transpose_a) {  // every row of every batch times one matrix
    const int64_t k = a.back();
    a = {Product(a.begin(), a.end() - 1), k};
  } else if (Dims(a.begin(), a.end() - 2) == Dims(b.begin(), b.end() - 2)) {
    const int64_t batch = Product(a.begin(), a.end() - 2);
    a.erase(a.begin(), a.end() - 2);
    b.erase(b.begin(), b.end() - 2);
    if (batch > 1) {
      a.insert(a.begin(), batch);
      b.insert(b.begin(), batch);
    }
  }
  const size_t rank = std::max(a.size(), b.size());
  views.a = AlignRank(std::move(a), rank);
  views.b = AlignRank(std::move(b), rank);
  auto transpose = [rank](Dims* dims, Dims* strides) {
    *strides = RowMajorStrides(*dims);
    std::swap((*dims)[rank - 1], (*dims)[rank - 2]);
    std::swap((*strides)[rank - 1], (*strides)[rank - 2]);
  };
  if (transpose_a) transpose(&views.a, &views.a_strides);
  if (transpose_b) transpose(&views.b, &views.b_strides);
  for (size_t i = 0; i + 2 < rank; ++i) views.out.push_back(std::max(views.a[i], views.b[i]));
  views.out.push_back(views.a[rank - 2]);
  views.out.push_back(views.b[rank - 1]);
  return views;
}

}  // namespace inlay::onednn
