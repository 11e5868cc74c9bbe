// Winograd convolutions against loops in f64, within the componentwise bound of their rounding errors.
#include "core/backends/native/winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/backends/native/testing/cores.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using testing::KernelJit;

struct Case {
  int64_t n, c, m, height, width;
  int64_t top = 1, left = 1, bottom = 1, right = 1;
  // In three dimensions: slices, those of the kernel, padding.
  int64_t depth = 1, kernel = 1, front = 0, back = 0;
  int64_t stride = 1, groups = 1;
  int64_t row_dilation = 1, dilation = 1;
  int64_t row_taps = 3, taps = 3;

  int64_t all_taps() const { return row_taps * taps; }
  int64_t group_inputs() const { return c / groups; }
  int64_t kernels() const { return group_inputs() * kernel; }  // 3x3 ones of an output channel
};

using Matrix = std::vector<std::vector<double>>;

// |A|, |B| and |G|, transposed as they are used.
struct Magnitudes {
  Matrix a, b, g;
};

// F(m, 2) of the even inputs, then the odd inputs themselves.
Magnitudes StridedMagnitudes(int64_t m) {
  const double a = kStridedA, b = kStridedB;
  Magnitudes r{{{1, 1, 0}, {0, 1, 1}}, {{1, 1, 0}, {0, 1, 0}, {0, 1, 1}}, {{1, 0}, {1, 1}, {0, 1}}};
  if (m == 4) {
    const double plus = 1 / (2 * a * a * (b - a)), minus = 1 / (2 * a * a * (a + b)), of_b = 1 / (b * (b * b - a * a));
    r = {{{1, 1, 1, 1, 0}, {0, a, a, b, 0}, {0, a * a, a * a, b * b, 0}, {0, a * a * a, a * a * a, b * b * b, 1}},
         {{a * a * b, a * a, b, 1, 0},
          {0, a * b, b - a, 1, 0},
          {0, a * b, b + a, 1, 0},
          {0, a * a, 0, 1, 0},
          {0, a * a * b, a * a, b, 1}},
         {{1 / (a * a * b), 0}, {plus, a * plus}, {minus, a * minus}, {of_b, b * of_b}, {0, 1}}};
  }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < m; ++j) r.a[i].push_back(i == j);
  }
  for (std::vector<double>& row : r.b) {
    for (int64_t j = m; j > 0; --j) row.insert(row.begin() + j, 0);
  }
  for (std::vector<double>& row : r.g) row.insert(row.begin() + 1, 0);
  for (int64_t i = 0; i < m; ++i) {
    r.b.emplace_back(2 * m + 1, 0)[2 * i + 1] = 1;
    r.g.push_back({0, 1, 0});
  }
  return r;
}

// Of a kernel along an axis.
int64_t ChunksOf(int64_t m, int64_t taps) { return m == 4 && taps > 6 ? (taps + m - 1) / m : 1; }

// Of the product of (x - p) for those of `points` that are not the one at `without`: its coefficients.
std::vector<double> Polynomial(const std::vector<double>& points, size_t without) {
  std::vector<double> result{1};
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == without) continue;
    result.insert(result.begin(), 0);
    for (size_t j = 0; j + 1 < result.size(); ++j) result[j] -= points[i] * result[j + 1];
  }
  return result;
}

// Lagrange's interpolation in the finite points; infinity, if there is one, is last.
Magnitudes MagnitudesOfTile(int64_t m, int64_t taps) {
  const bool has_infinity = (m + taps) % 2 == 1;
  std::vector<double> points{0};
  for (double p : WinogradPairs(m + taps - 1)) points.insert(points.end(), {p, -p});
  auto power = [](double p, int64_t n) { return n == 0 ? 1 : std::pow(std::abs(p), n); };
  Magnitudes r{Matrix(m), {}, {}};
  for (int64_t i = 0; i < m; ++i) {
    for (double p : points) r.a[i].push_back(power(p, i));
    if (has_infinity) r.a[i].push_back(i == m - 1);
  }
  for (size_t i = 0; i < points.size() + has_infinity; ++i) {
    r.b.push_back(Polynomial(points, i));
    r.b.back().resize(m + taps - 1);
    for (double& c : r.b.back()) c = std::abs(c);
    r.g.emplace_back(taps, 0);
    if (i == points.size()) {
      r.g.back().back() = 1;
      continue;
    }
    double scale = 1;
    for (size_t j = 0; j < points.size(); ++j) scale *= j == i ? 1 : std::abs(points[i] - points[j]);
    for (int64_t t = 0; t < taps; ++t) r.g.back()[t] = power(points[i], t) / scale;
  }
  return r;
}

// Chunks of a kernel have points of their own, of inputs that begin m later.
Magnitudes MagnitudesOf(int64_t m, int64_t stride, int64_t taps) {
  if (taps == 1) return {{{1}}, {{1}}, {{1}}};
  if (stride == 2) return StridedMagnitudes(m);
  const int64_t chunks = ChunksOf(m, taps);
  const Magnitudes of_tile = MagnitudesOfTile(m, chunks > 1 ? m : taps);
  if (chunks == 1) return of_tile;
  Magnitudes r{Matrix(m), {}, {}};
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t i = 0; i < m; ++i) r.a[i].insert(r.a[i].end(), of_tile.a[i].begin(), of_tile.a[i].end());
    for (size_t p = 0; p < of_tile.b.size(); ++p) {
      r.b.emplace_back(m * (chunks + 1) - 1, 0);
      std::copy(of_tile.b[p].begin(), of_tile.b[p].end(), r.b.back().begin() + chunk * m);
      r.g.emplace_back(taps, 0);
      for (int64_t t = chunk * m; t < std::min(taps, (chunk + 1) * m); ++t) r.g.back()[t] = of_tile.g[p][t - chunk * m];
    }
  }
  return r;
}

// rows x columns^T
Matrix BothWays(const Matrix& rows, const Matrix& columns, const Matrix& x) {
  Matrix y(rows.size(), std::vector<double>(columns.size(), 0));
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < columns.size(); ++j)
      for (size_t k = 0; k < x.size(); ++k)
        for (size_t l = 0; l < x[k].size(); ++l) y[i][j] += rows[i][k] * x[k][l] * columns[j][l];
  return y;
}

std::vector<float> Random(int64_t n, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

struct Outcome {
  std::vector<float> x, w, y;
  int64_t height, width;
};

// Compiles and runs: weights and planes of `packed_for`, the rest by `plan`. Everything the kernels do not write is
// NaN.
Outcome Execute(KernelJit& jit, const Case& c, const WinogradPlan& packed_for, const WinogradPlan& plan,
                std::vector<float> x) {
  const ConvShape& s = plan.shape;
  Outcome r{std::move(x), Random(c.m * c.kernels() * c.all_taps(), 2), {}, s.out[1], s.out[2]};
  r.y.assign(c.n * c.m * s.pixels() + 64, 77.0f);
  std::vector<float> packed(packed_for.packed_weight_elements() + 64, NAN),
      planes(packed_for.planes_elements() + 64, NAN), input(plan.shared_input_elements() + 64, NAN),
      scratch(plan.scratch_bytes() / 4 + 64, NAN);
  auto run = jit.Compile(7, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    Type f32 = kb.b.getF32Type();
    EmitWinogradWeights(kb, packed_for, p[1], p[2]);
    EmitWinogradPlanes(kb, packed_for, p[0], kb.Int(0), kb.Int(packed_for.plane_line_items()), p[3]);
    WinogradKernel kernel;
    kernel.plan = plan;
    kernel.input = p[3];
    kernel.weights = p[2];
    if (!plan.fused) {
      EmitWinogradInput(kb, plan, p[3], kb.Int(0), kb.Int(plan.transform_tasks()), p[4]);
      kernel.input = p[4];
    }
    kernel.epilogue = [&](KernelBuilder& kb, Value image, Value channel, Value pixel, Value value) {
      Value plane = kb.Add(kb.Mul(image, c.m), channel);
      kb.Store(value, kb.At(kb.At(p[5], kb.Mul(plane, s.pixels()), f32), pixel, f32));
    };
    EmitWinogradTasks(kb, kernel, kb.Int(0), kb.Int(plan.tasks()), p[6]);
  });
  void* args[] = {r.x.data(), r.w.data(), packed.data(), planes.data(), input.data(), r.y.data(), scratch.data()};
  run(args);
  return r;
}

ConvShape ShapeOf(const Case& c) {
  ConvShape s;
  s.n = c.n;
  s.c = c.c;
  s.m = c.m;
  s.groups = c.groups;
  s.in = {c.depth, c.height, c.width};
  s.kernel = {c.kernel, c.row_taps, c.taps};
  s.pad = {c.front, c.top, c.left};
  s.stride = {1, c.stride, c.stride};
  s.dilation = {1, c.row_dilation, c.dilation};
  s.out = {c.depth + c.front + c.back - c.kernel + 1,
           (c.height + c.top + c.bottom - (c.row_taps - 1) * c.row_dilation - 1) / c.stride + 1,
           (c.width + c.left + c.right - (c.taps - 1) * c.dilation - 1) / c.stride + 1};
  return s;
}

ConvShape Strided(Case c) {
  c.stride = 2;
  return ShapeOf(c);
}

enum class Way { kByRule, kFused, kFiner };

void Check(const std::string& cpu, const Case& c, int64_t m, Way way) {
  SCOPED_TRACE(cpu + " F(" + std::to_string(m) + ") " + std::to_string(c.n) + "x" + std::to_string(c.c) + "x" +
               std::to_string(c.height) + "x" + std::to_string(c.width) + " to " + std::to_string(c.m) + " by " +
               std::to_string(c.stride) + ", dilations " + std::to_string(c.row_dilation) + " and " +
               std::to_string(c.dilation));
  KernelJit jit(cpu);
  std::optional<WinogradPlan> found = PlanWinograd(jit.core(), ShapeOf(c), m);
  ASSERT_TRUE(found.has_value());
  WinogradPlan plan = *found;
  if (way == Way::kFused) plan.fused = true;
  if (way == Way::kFiner) {
    const std::optional<FinerWinograd> finer = FinerBlocks(plan);
    if (!finer.has_value()) return;
    plan = finer->plan;
  }
  Outcome r = Execute(jit, c, *found, plan, Random(c.n * c.c * c.depth * c.height * c.width, 1));
  const Magnitudes of_rows = MagnitudesOf(m, c.stride, c.row_taps), of_columns = MagnitudesOf(m, c.stride, c.taps);
  const int64_t all_taps = c.all_taps();
  const int64_t row_m = c.row_taps > 1 ? m : 1, column_m = c.taps > 1 ? m : 1;
  std::vector<Matrix> weights;
  for (int64_t i = 0; i < c.m * c.kernels(); ++i) {
    Matrix g(c.row_taps, std::vector<double>(c.taps));
    for (int64_t t = 0; t < all_taps; ++t) g[t / c.taps][t % c.taps] = std::abs(r.w[i * all_taps + t]);
    weights.push_back(BothWays(of_rows.g, of_columns.g, g));
  }
  // Sums of as many terms as there are kernels, and the roundings of the transforms.
  const int64_t chunks = ChunksOf(m, std::max(c.row_taps, c.taps));
  double unit = (static_cast<double>(c.kernels() * chunks) + 20) * std::ldexp(1.0, -24), worst = 0;
  const int64_t in_rows = static_cast<int64_t>(of_rows.b[0].size());
  const int64_t in_columns = static_cast<int64_t>(of_columns.b[0].size());
  // Of each phase.
  const int64_t rows = (r.height + row_m * c.row_dilation - 1) / (row_m * c.row_dilation);
  const int64_t columns = (r.width + column_m * c.dilation - 1) / (column_m * c.dilation), tiles = rows * columns;
  const int64_t slices = plan.shape.out[0];
  for (int64_t place = 0; place < c.n * slices; ++place) {
    const int64_t image = place / slices, slice = place % slices;
    for (int64_t tile = 0; tile < tiles * c.row_dilation * c.dilation; ++tile) {
      const int64_t phase = tile / tiles;
      int64_t top = tile % tiles / columns * row_m, left = tile % columns * column_m;  // of the phase's results
      auto row_of = [&](int64_t i) { return i * c.row_dilation + phase / c.dilation; };
      auto column_of = [&](int64_t j) { return j * c.dilation + phase % c.dilation; };
      std::vector<Matrix> d(c.c * c.kernel, Matrix(in_rows, std::vector<double>(in_columns, 0))), magnitude;
      for (int64_t ch = 0; ch < c.c * c.kernel; ++ch) {
        int64_t from = slice + ch % c.kernel - c.front;
        Matrix absolute = d[ch];
        for (int64_t i = 0; i < in_rows; ++i) {
          for (int64_t j = 0; j < in_columns; ++j) {
            int64_t h = row_of(top * c.stride + i) - c.top, w = column_of(left * c.stride + j) - c.left;
            if (h < 0 || w < 0 || h >= c.height || w >= c.width || from < 0 || from >= c.depth) continue;
            d[ch][i][j] = r.x[(((image * c.c + ch / c.kernel) * c.depth + from) * c.height + h) * c.width + w];
            absolute[i][j] = std::abs(d[ch][i][j]);
          }
        }
        magnitude.push_back(BothWays(of_rows.b, of_columns.b, absolute));
      }
      for (int64_t o = 0; o < c.m; ++o) {
        Matrix sum(of_rows.b.size(), std::vector<double>(of_columns.b.size(), 0));
        const int64_t first = o / (c.m / c.groups) * c.kernels();  // of the group's
        for (int64_t ch = 0; ch < c.kernels(); ++ch)
          for (size_t i = 0; i < sum.size(); ++i)
            for (size_t j = 0; j < sum[i].size(); ++j)
              sum[i][j] += magnitude[first + ch][i][j] * weights[o * c.kernels() + ch][i][j];
        Matrix bound = BothWays(of_rows.a, of_columns.a, sum);
        for (int64_t i = 0; i < row_m; ++i) {
          for (int64_t j = 0; j < column_m; ++j) {
            const int64_t row = row_of(top + i), column = column_of(left + j);
            if (row >= r.height || column >= r.width) continue;
            double want = 0;
            for (int64_t ch = 0; ch < c.kernels(); ++ch)
              for (int64_t t = 0; t < all_taps; ++t)
                want += d[first + ch][i * c.stride + t / c.taps][j * c.stride + t % c.taps] *
                        r.w[(o * c.kernels() + ch) * all_taps + t];
            double got = r.y[(((image * c.m + o) * slices + slice) * r.height + row) * r.width + column];
            double error = std::abs(want - got);
            ASSERT_LE(error, unit * bound[i][j])
                << "channel " << o << " slice " << slice << " at " << row << ", " << column;
            worst = std::max(worst, error / (unit * bound[i][j]));
          }
        }
      }
    }
  }
  for (size_t i = r.y.size() - 64; i < r.y.size(); ++i) ASSERT_EQ(r.y[i], 77.0f);
  ::testing::Test::RecordProperty("share_of_bound", std::to_string(worst));
}

class WinogradTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "x86-64-v4" && !__builtin_cpu_supports("avx512vl")) GTEST_SKIP() << "no AVX-512 here";
    if (GetParam() == "x86-64-v3" && !__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  }
  void CheckAll(const Case& c) {
    for (int64_t m = 2; m <= 7; ++m) {
      if (!PlanWinograd(KernelJit(GetParam()).core(), ShapeOf(c), m).has_value()) continue;
      for (Way way : {Way::kByRule, Way::kFused, Way::kFiner}) {
        if (way != Way::kFused || c.kernel == 1) Check(GetParam(), c, m, way);
      }
    }
  }
};

TEST_P(WinogradTest, Extents) {
  for (int64_t extent : {1, 2, 3, 5, 7, 13, 14, 28}) CheckAll({1, 16, 16, extent, extent});
  CheckAll({1, 16, 16, 1, 29});
  CheckAll({1, 16, 16, 29, 1});
  CheckAll({1, 16, 16, 5, 18});
}

TEST_P(WinogradTest, Padding) {
  CheckAll({1, 16, 16, 9, 11, 0, 0, 0, 0});
  CheckAll({1, 16, 16, 9, 11, 0, 1, 2, 0});
  CheckAll({1, 16, 16, 5, 6, 4, 3, 0, 5});
  CheckAll({1, 16, 16, 3, 3, 0, 0, 0, 0});
  CheckAll({1, 16, 16, 9, 9, -1, -2, 1, 1});
}

// Where each odd input and each of A's columns goes; the rest is as of stride 1.
TEST_P(WinogradTest, Strides) {
  for (Case c : {Case{1, 16, 16, 1, 1}, Case{1, 16, 16, 4, 7}, Case{1, 16, 16, 14, 14}, Case{1, 16, 16, 15, 33},
                 Case{1, 16, 16, 9, 11, 0, 1, 2, 0}, Case{1, 16, 16, 5, 6, 4, 3, 0, 5},
                 Case{1, 16, 16, 3, 3, 0, 0, 0, 0}, Case{1, 16, 16, 9, 9, -1, -2, 1, 1}, Case{1, 3, 17, 6, 7},
                 Case{1, 65, 3, 6, 7}, Case{2, 17, 20, 7, 7}, Case{1, 3, 5, 6, 523}, Case{2, 33, 40, 27, 27}}) {
    c.stride = 2;
    CheckAll(c);
  }
  Check(GetParam(), {2, 16, 33, 7, 8, 1, 1, 1, 1, 5, 1, 1, 1, 2}, 2, Way::kByRule);  // slices of their own
}

TEST_P(WinogradTest, Groups) {
  for (Case c : {Case{1, 16, 16, 9, 9}, Case{2, 24, 12, 7, 8}, Case{1, 12, 68, 14, 5}, Case{1, 32, 32, 15, 15},
                 Case{2, 64, 72, 13, 30}}) {
    for (c.groups = 2; c.groups <= 4; c.groups += 2) {
      for (c.stride = 1; c.stride <= 2; ++c.stride) CheckAll(c);
    }
  }
  Case deep{2, 32, 32, 6, 7, 1, 1, 1, 1, 4, 3, 1, 1};
  deep.groups = 4;
  CheckAll(deep);
}

TEST_P(WinogradTest, OtherSquares) {
  for (int64_t taps : {2, 4, 5}) {
    const int64_t half = taps / 2, rest = (taps - 1) / 2;
    for (Case c : {Case{1, 16, 16, 1, 1, half, half, half, half}, Case{1, 16, 16, 14, 14, half, half, rest, rest},
                   Case{2, 17, 20, 7, 9, half, half, half, half}, Case{1, 16, 33, 9, 11, 0, 1, 3, 0},
                   Case{1, 3, 5, 6, 200, 4, 3, 0, 5}, Case{1, 16, 16, 9, 9, -1, 2, 1, 2}}) {
      c.row_taps = c.taps = taps;
      CheckAll(c);
    }
    Case other{2, 32, 32, 10, 12, 4, 4, 4, 4};
    other.row_taps = other.taps = taps;
    other.row_dilation = other.dilation = other.groups = 2;
    if (taps == 2) other.top = other.bottom = other.left = other.right = 2;
    CheckAll(other);
  }
}

// The tiles that a kernel along one axis has; rows of a block that end an image, are not whole, are too wide; sequences
// as images of as many columns as their dilation, whose last row is not whole.
TEST_P(WinogradTest, Lines) {
  const auto tiles_of = [&](int64_t taps) {
    Case c{1, 16, 16, 1, 40, 0, 0, 0, 0};
    c.row_taps = 1;
    c.taps = taps;
    std::vector<int64_t> tiles;
    for (int64_t m = 1; m <= 8; ++m) {
      if (PlanWinograd(KernelJit(GetParam()).core(), ShapeOf(c), m).has_value()) tiles.push_back(m);
    }
    return tiles;
  };
  EXPECT_EQ(tiles_of(2), (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(tiles_of(3), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(tiles_of(7), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(tiles_of(8), (std::vector<int64_t>{4}));
  for (int64_t taps : {2, 3, 4, 5, 6, 7, 8, 11, 17}) {
    Case row{2, 17, 9, 5, 39, 0, taps / 2, 0, taps / 2};
    row.row_taps = 1;
    row.taps = taps;
    CheckAll(row);
    Case column{2, 17, 9, 19, 5, taps / 2, 0, taps / 2, 0};
    column.row_taps = taps;
    column.taps = 1;
    CheckAll(column);
    Case sequence{2, 17, 9, 1, 60, 0, 0, 0, 3 * (taps - 1)};
    sequence.row_taps = 1;
    sequence.taps = taps;
    sequence.dilation = 3;
    CheckAll(sequence);
  }
  const auto sequence = [](int64_t n, int64_t channels, int64_t width, int64_t dilation, int64_t left, int64_t right) {
    Case c{n, channels, 9, 1, width, 0, left, 0, right};
    c.row_taps = 1;
    c.dilation = dilation;
    return c;
  };
  CheckAll(sequence(1, 16, 1, 1, 1, 1));
  CheckAll(sequence(1, 16, 6, 1, 1, 1));
  CheckAll(sequence(1, 20, 1000, 1, 2, 0));
  for (int64_t dilation : {2, 5, 64}) CheckAll(sequence(2, 16, 203, dilation, dilation, dilation));
  CheckAll(sequence(1, 16, 203, 4, 7, 0));
  CheckAll(sequence(1, 16, 70, 3, 0, 0));
  CheckAll(sequence(1, 16, 700, 300, 600, 0));
  CheckAll(sequence(1, 16, 32, 32, 32, 32));
  Case chunks = sequence(2, 16, 300, 4, 30, 10);
  chunks.taps = 11;
  CheckAll(chunks);
  Case parts = chunks;  // its finer blocks are parts of its row
  parts.dilation = 1;
  parts.c = parts.m = 48;
  CheckAll(parts);
  chunks.dilation = 1;
  chunks.groups = 2;
  chunks.m = 12;
  CheckAll(chunks);
  Case grouped = sequence(2, 32, 75, 2, 2, 2);
  grouped.m = 24;
  grouped.groups = 4;
  CheckAll(grouped);
  Case rows{2, 16, 16, 33, 9, 4, 0, 4, 0};
  rows.taps = 1;
  rows.row_dilation = 4;
  CheckAll(rows);
  Case columns{2, 16, 16, 9, 33, 0, 4, 0, 4};
  columns.row_taps = 1;
  columns.dilation = 4;
  CheckAll(columns);
  Case slices{2, 16, 16, 7, 9, 1, 0, 1, 0, 3};
  slices.taps = 1;
  CheckAll(slices);
}

// Phases of one result, of more rows than another; no padding, more than the kernel's reach.
TEST_P(WinogradTest, Dilations) {
  const auto dilated = [](Case c, int64_t rows, int64_t columns) {
    c.row_dilation = rows;
    c.dilation = columns;
    return c;
  };
  CheckAll(dilated({1, 16, 16, 14, 14, 2, 2, 2, 2}, 2, 2));
  CheckAll(dilated({2, 17, 20, 13, 9, 3, 3, 3, 3}, 3, 3));
  CheckAll(dilated({1, 16, 33, 5, 6, 5, 5, 5, 5}, 5, 5));
  CheckAll(dilated({1, 16, 16, 12, 13, 12, 13, 12, 13}, 12, 13));
  CheckAll(dilated({1, 16, 16, 14, 20, 0, 0, 0, 0}, 4, 2));
  CheckAll(dilated({1, 3, 5, 9, 33, 1, 5, 3, 0}, 1, 5));
  CheckAll(dilated({1, 16, 16, 7, 3, 2, 1, 9, 1}, 2, 1));
  Case grouped = dilated({1, 32, 32, 10, 12, 2, 2, 2, 2}, 2, 2);
  grouped.groups = 2;
  CheckAll(grouped);
  CheckAll(dilated({1, 16, 16, 6, 290, 4, 4, 4, 4}, 4, 4));
  const ConvShape beyond = ShapeOf(dilated({1, 16, 16, 5, 5, 1 << 30, 6, 1 << 30, 6}, 1 << 30, 6));
  EXPECT_FALSE(IsWinogradShape(beyond)) << "phases without results";
}

TEST_P(WinogradTest, ChannelTails) {
  for (int64_t channels : {1, 3, 17, 65}) {
    CheckAll({1, channels, 16, 6, 7});
    CheckAll({1, 16, channels, 6, 7});
    CheckAll({1, channels, channels, 9, 5});
  }
}

TEST_P(WinogradTest, Batches) {
  CheckAll({2, 17, 20, 7, 7});
  CheckAll({5, 16, 16, 13, 3});
  CheckAll({3, 16, 48, 14, 14});
}

TEST_P(WinogradTest, WideImages) {
  CheckAll({1, 3, 5, 6, 523});
  Check(GetParam(), {2, 3, 5, 3, 263}, 2, Way::kByRule);
}

TEST_P(WinogradTest, ThreeDimensions) {
  const auto deep = [](int64_t n, int64_t c, int64_t m, int64_t extent, int64_t depth, int64_t kernel, int64_t pad) {
    return Case{n, c, m, extent, extent + 1, 1, 1, 1, 1, depth, kernel, pad, pad};
  };
  CheckAll(deep(1, 16, 16, 9, 4, 3, 1));
  CheckAll(deep(1, 17, 20, 13, 1, 3, 1));
  CheckAll(deep(2, 16, 33, 7, 5, 3, 1));
  CheckAll(deep(3, 5, 16, 14, 3, 2, 0));
  CheckAll(deep(1, 16, 16, 3, 6, 5, 2));
  CheckAll(deep(2, 20, 16, 9, 3, 1, 0));  // slices of their own
  CheckAll({1, 16, 16, 5, 6, 1, 1, 1, 1, 4, 3, 2, 0});
  CheckAll({1, 3, 5, 6, 263, 1, 1, 1, 1, 3, 3, 1, 1});  // rows of several blocks
}

// Transformed weights that come from beyond L2 cost such cores twice as much.
TEST(WinogradChoiceTest, FarCachesHaveFewerWeights) {
  const Core core = testing::WithFarCaches(Core{64, 32});
  const auto choice = [&](const Case& c) -> int64_t {
    const auto plan = ChooseWinograd(core, PlanConv(core, ShapeOf(c), 4), {});
    return plan ? plan->m() : 0;
  };
  EXPECT_EQ(choice({1, 128, 128, 28, 28}), 4);
  EXPECT_EQ(choice({1, 256, 256, 14, 14}), 2);
  EXPECT_EQ(choice({1, 512, 512, 7, 7}), 0);
  EXPECT_EQ(choice({8, 512, 512, 7, 7}), 4);
  Case five{1, 256, 256, 8, 8, 2, 2, 2, 2}, near{1, 64, 64, 28, 28, 2, 2, 2, 2};
  five.row_taps = five.taps = near.row_taps = near.taps = 5;
  EXPECT_EQ(choice(five), 0);
  EXPECT_EQ(choice(near), 2);
}

TEST(WinogradChoiceTest, Lines) {
  const auto choice = [&](const Core& core, Case c, int64_t row_taps, int64_t taps) -> int64_t {
    c.row_taps = row_taps;
    c.taps = taps;
    c.top = c.bottom = row_taps / 2;
    c.left = c.right = taps / 2;
    const auto plan = ChooseWinograd(core, PlanConv(core, ShapeOf(c), 4), {});
    return plan ? plan->m() : 0;
  };
  for (const Core& core : {Core{32, 16}, testing::WithFarCaches(Core{64, 32})}) {
    EXPECT_EQ(choice(core, {1, 256, 256, 1, 512}, 1, 3), 6);
    EXPECT_EQ(choice(core, {1, 256, 256, 1, 256}, 1, 5), 4);
    EXPECT_EQ(choice(core, {1, 128, 128, 1, 1000}, 1, 11), 4) << "chunks";
    EXPECT_EQ(choice(core, {1, 4, 32, 1, 1000}, 1, 3), 0) << "few channels";
  }
  const Core far = testing::WithFarCaches(Core{64, 32});
  EXPECT_EQ(choice(far, {1, 512, 512, 2, 49}, 3, 1), 0) << "weights from afar";
}

// Read in place, most of a kernel that is as wide as the image sees padding, which is left out.
TEST(WinogradChoiceTest, WideDilationsAreMostlyPadding) {
  const Core core = testing::WithFarCaches(Core{64, 32});
  const auto is_chosen = [&](int64_t extent, int64_t dilation) {
    Case c{1, 256, 256, extent, extent, dilation, dilation, dilation, dilation};
    c.row_dilation = c.dilation = dilation;
    return ChooseWinograd(core, PlanConv(core, ShapeOf(c), 4), {}).has_value();
  };
  EXPECT_TRUE(is_chosen(28, 2));
  EXPECT_TRUE(is_chosen(33, 6));
  EXPECT_FALSE(is_chosen(33, 18));
}

// Zen 3: what weights take is not hidden, so blocks read them seldom; and what is not in L2 comes late, so that tasks
// rather transform their own input, if L2 barely holds it.
TEST(WinogradChoiceTest, SmallCaches) {
  Core core{32, 16, 32 << 10, 512 << 10};
  core.slow_starts = true;
  ASSERT_TRUE(core.waits_for_l2());
  const auto plan_of = [&](const ConvShape& s) { return ChooseWinograd(core, PlanConv(core, s, 4), {}); };
  EXPECT_EQ(plan_of(ShapeOf({1, 256, 256, 14, 14}))->blocks(), 1);
  EXPECT_EQ(plan_of(ShapeOf({1, 512, 512, 7, 7}))->blocks(), 1);
  EXPECT_TRUE(plan_of(ShapeOf({1, 128, 128, 112, 112}))->fused);
  EXPECT_TRUE(plan_of(Strided({1, 32, 64, 224, 224}))->fused);
  EXPECT_EQ(plan_of(Strided({1, 128, 128, 56, 56}))->m(), 4);
  EXPECT_EQ(plan_of(Strided({1, 256, 256, 28, 28}))->m(), 2);
  EXPECT_FALSE(plan_of(Strided({1, 512, 512, 14, 14})).has_value()) << "26 MB of weights";
  const auto grouped = [&](Case c, int64_t groups) {
    c.groups = groups;
    return plan_of(ShapeOf(c)).has_value();
  };
  EXPECT_TRUE(grouped({1, 112, 112, 28, 28}, 7));
  EXPECT_TRUE(grouped({1, 336, 336, 14, 14}, 14));
  // 3.5 MB of transformed input, of which each task makes a group's; groups of 12 channels would share it.
  Case large{1, 384, 384, 32, 32};
  large.groups = 24;
  const WinogradPlan by_group = plan_of(ShapeOf(large)).value();
  EXPECT_TRUE(by_group.fuses_groups());
  EXPECT_EQ(by_group.tasks(), by_group.blocks() * 24);
  EXPECT_EQ(by_group.shared_input_elements(), 0);
  EXPECT_FALSE(grouped({1, 384, 384, 32, 32}, 32));
  EXPECT_FALSE(grouped({1, 128, 128, 56, 56}, 32)) << "groups of 4 channels fill no vector";
  EXPECT_FALSE(grouped({1, 888, 888, 7, 7}, 37));
}

// Of one block and few panels 16 threads would mostly wait.
TEST(WinogradChoiceTest, ManyThreadsHaveFinerBlocks) {
  const Core core{64, 32};
  const auto plan_of = [&](const Case& c) { return *ChooseWinograd(core, PlanConv(core, ShapeOf(c), 4), {}); };
  const WinogradPlan few = plan_of({1, 128, 128, 28, 28});
  ASSERT_LT(few.tasks(), 8);
  const std::optional<FinerWinograd> finer = FinerBlocks(few);
  ASSERT_TRUE(finer.has_value());
  EXPECT_GE(finer->plan.tasks(), 16);
  EXPECT_GT(finer->threads, 2) << "where the tasks are enough, larger blocks are faster";
  EXPECT_LE(finer->threads, 8);
  EXPECT_EQ(finer->plan.packed_weight_elements(), few.packed_weight_elements());
  EXPECT_EQ(finer->plan.planes_elements(), few.planes_elements());
  // Of a sequence, along its one row.
  Case line{1, 48, 48, 1, 300, 0, 5, 0, 5};
  line.row_taps = 1;
  line.taps = 11;
  const WinogradPlan row = plan_of(line);
  ASSERT_LE(row.tasks(), 2);
  const std::optional<FinerWinograd> parts = FinerBlocks(row);
  ASSERT_TRUE(parts.has_value());
  EXPECT_GT(parts->plan.column_blocks(), row.column_blocks());
  EXPECT_EQ(parts->plan.planes_elements(), row.planes_elements());
  const WinogradPlan many = plan_of({8, 64, 64, 112, 112});
  ASSERT_GE(many.tasks(), 64);
  EXPECT_FALSE(FinerBlocks(many).has_value());
}

// Layers of ResNet-50 and VGG by Winograd; few channels, tiny images and other forms not.
TEST(WinogradChoiceTest, Rule) {
  for (Core core : {Core{64, 32}, Core{32, 16}, Core{16, 16}}) {
    auto choice = [&](const ConvShape& shape) -> int64_t {
      auto plan = ChooseWinograd(core, PlanConv(core, shape, 4), {});
      return plan ? plan->m() : 0;
    };
    for (const Case& c :
         {Case{1, 64, 64, 56, 56}, Case{1, 128, 128, 28, 28}, Case{1, 256, 256, 14, 14}, Case{1, 64, 64, 224, 224}}) {
      EXPECT_EQ(choice(ShapeOf(c)), 4) << c.c;
    }
    EXPECT_NE(choice(ShapeOf({1, 512, 512, 7, 7})), 0);
    EXPECT_NE(choice(ShapeOf({1, 64, 64, 28, 28, 1, 1, 1, 1, 4, 3, 1, 1})), 0);
    EXPECT_EQ(choice(ShapeOf({1, 3, 64, 224, 224})), 0);
    EXPECT_EQ(choice(ShapeOf({1, 64, 64, 1, 1})), 0);
    ConvShape other = ShapeOf({1, 64, 64, 56, 56});
    other.stride = {1, 2, 1};
    other.out = {1, 28, 56};
    EXPECT_EQ(choice(other), 0);
    EXPECT_NE(choice(Strided({1, 128, 128, 56, 56})), 0);
    EXPECT_NE(choice(Strided({1, 64, 128, 112, 112})), 0);
    EXPECT_EQ(choice(Strided({1, 3, 64, 224, 224})), 0);
  }
}

// What a NaN or an infinity touches directly is lost, and no more than its tiles are.
TEST_P(WinogradTest, NotFinite) {
  for (int64_t stride : {1, 2}) {
    for (int64_t m : {2, 4}) {
      for (float poison : {static_cast<float>(NAN), static_cast<float>(INFINITY)}) {
        Case c{1, 16, 16, 13, 13};
        c.stride = stride;
        KernelJit jit(GetParam());
        WinogradPlan plan = *PlanWinograd(jit.core(), ShapeOf(c), m);
        std::vector<float> x = Random(c.c * 13 * 13, 1);
        x[3 * 169 + 6 * 13 + 7] = poison;
        Outcome r = Execute(jit, c, plan, plan, x);
        for (int64_t i = 0; i < c.m * r.height * r.width; ++i) {
          const int64_t h = i / r.width % r.height, w = i % r.width;
          const bool touched = std::abs(h * stride - 6) <= 1 && std::abs(w * stride - 7) <= 1;
          // Tiles whose input holds the pixel.
          auto near = [&](int64_t out, int64_t in) {
            const int64_t first = out / m * m * stride - 1;
            return in >= first && in < first + plan.columns.inputs();
          };
          if (touched) {
            EXPECT_FALSE(std::isfinite(r.y[i])) << h << ", " << w;
          } else if (!near(h, 6) || !near(w, 7)) {
            EXPECT_TRUE(std::isfinite(r.y[i])) << h << ", " << w;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpus, WinogradTest, ::testing::Values("x86-64", "x86-64-v3", "x86-64-v4"),
                         [](const auto& info) { return "cpu" + std::to_string(info.index); });

}  // namespace
}  // namespace inlay::native
