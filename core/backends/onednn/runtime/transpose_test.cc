#include "core/backends/onednn/runtime/transpose.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace inlay::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Of(const memory::dims& dims, Tag tag) { return memory::desc(dims, memory::data_type::f32, tag); }

TEST(Transpose, RecognisesItself) {
  Transpose t;
  ASSERT_TRUE(AsTranspose(Of({2, 3, 5, 7}, Tag::nchw), Of({2, 3, 5, 7}, Tag::nhwc), &t));
  EXPECT_EQ(t.batch, 2);
  EXPECT_EQ(t.rows, 3);
  EXPECT_EQ(t.columns, 35);
  ASSERT_TRUE(AsTranspose(Of({2, 3, 5}, Tag::nwc), Of({2, 3, 5}, Tag::ncw), &t));
  EXPECT_EQ(t.rows, 5);
  EXPECT_EQ(t.columns, 3);
  EXPECT_FALSE(AsTranspose(Of({2, 32, 5, 7}, Tag::nchw), Of({2, 32, 5, 7}, Tag::nChw16c), &t));
  EXPECT_FALSE(AsTranspose(Of({3, 5}, Tag::ab), Of({3, 5}, Tag::ba), &t));
}

TEST(Transpose, MovesEveryElement) {
  for (int64_t rows : {1, 3, 4, 17, 1024}) {
    for (int64_t columns : {1, 2, 5, 16, 49}) {
      const Transpose t{2, rows, columns};
      std::vector<float> from(2 * rows * columns), to(from.size(), -1);
      std::iota(from.begin(), from.end(), 0.f);
      RunTranspose(t, from.data(), to.data());
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            const int64_t base = b * rows * columns;
            ASSERT_EQ(to[base + j * rows + i], from[base + i * columns + j]) << rows << "x" << columns;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay::onednn
