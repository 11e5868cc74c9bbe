// GFLOP/s of one core by oneDNN alone, of whichever major version its headers are: what a newer library would gain.
// Built by hand, since only one oneDNN is in the build:
//   g++ -O2 -std=c++17 -fopenmp -I$HEADERS library_benchmark.cc $LIBRARY -o benchmark
//   OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 ./benchmark          (2.6: DNNL_MAX_CPU_ISA)
// HEADERS and LIBRARY: .venv/include and .venv/lib/libdnnl.so.3, or those of Debian's libdnnl-dev (2.6).
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>

namespace {

using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Of this thread: machines that build are busy.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

dnnl::memory Filled(const Desc& desc) {
  dnnl::memory memory(desc, Engine());
  float* data = static_cast<float*>(memory.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) data[i] = static_cast<float>(i % 7) * 0.1f - 0.2f;
  return memory;
}

void Measure(const std::string& name, double flops, const dnnl::primitive& primitive,
             const std::unordered_map<int, dnnl::memory>& args) {
  dnnl::stream stream(Engine());
  const int iterations = std::max(1, static_cast<int>(4e8 / flops));
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    const double start = Seconds();
    for (int i = 0; i < iterations; ++i) primitive.execute(stream, args);
    stream.wait();
    best = std::min(best, (Seconds() - start) / iterations);
  }
  printf("%-28s %6.1f GF/s\n", name.c_str(), flops / best / 1e9);
}

void Convolution(int64_t c, int64_t m, int64_t groups, int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
  const int64_t out = (in + 2 * pad - kernel) / stride + 1;
  const Desc x({1, c, in, in}, Type::f32, Tag::any), y({1, m, out, out}, Type::f32, Tag::any),
      bias({m}, Type::f32, Tag::x);
  const Desc w = groups == 1 ? Desc({m, c, kernel, kernel}, Type::f32, Tag::any)
                             : Desc({groups, m / groups, c / groups, kernel, kernel}, Type::f32, Tag::any);
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  dnnl::convolution_forward::primitive_desc desc(Engine(), kind, algorithm, x, w, bias, y, {stride, stride}, {pad, pad},
                                                 {pad, pad});
#else
  dnnl::convolution_forward::primitive_desc desc(
      dnnl::convolution_forward::desc(kind, algorithm, x, w, bias, y, {stride, stride}, {pad, pad}, {pad, pad}),
      Engine());
#endif
  char name[96];
  snprintf(name, sizeof name, "conv %ldx%ld/%ld %ld-%ld g%ld %ld", kernel, kernel, stride, c, m, groups, in);
  Measure(name, 2.0 * m * c / groups * kernel * kernel * out * out, dnnl::convolution_forward(desc),
          {{DNNL_ARG_SRC, Filled(desc.src_desc())},
           {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
           {DNNL_ARG_BIAS, Filled(desc.bias_desc())},
           {DNNL_ARG_DST, Filled(desc.dst_desc())}});
}

void Matmul(int64_t m, int64_t n, int64_t k) {
  const Desc x({m, k}, Type::f32, Tag::ab), w({k, n}, Type::f32, Tag::any), y({m, n}, Type::f32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc desc(Engine(), x, w, y);
#else
  dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w, y), Engine());
#endif
  char name[96];
  snprintf(name, sizeof name, "matmul %ldx%ldx%ld", m, n, k);
  Measure(name, 2.0 * m * n * k, dnnl::matmul(desc),
          {{DNNL_ARG_SRC, Filled(desc.src_desc())},
           {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
           {DNNL_ARG_DST, Filled(desc.dst_desc())}});
}

}  // namespace

int main() {
  Matmul(128, 768, 768);  // m x n x k
  Matmul(128, 3072, 768);
  Matmul(128, 768, 3072);
  Matmul(64, 768, 768);
  Matmul(1, 3072, 768);
  Matmul(8, 1024, 1024);
  Convolution(64, 64, 1, 56, 3, 1, 1);
  Convolution(128, 128, 1, 28, 3, 1, 1);
  Convolution(256, 256, 1, 14, 3, 1, 1);
  Convolution(512, 512, 1, 7, 3, 1, 1);
  Convolution(128, 128, 1, 56, 3, 2, 1);
  Convolution(3, 64, 1, 224, 7, 2, 3);
  Convolution(64, 256, 1, 56, 1, 1, 0);
  Convolution(512, 128, 1, 28, 1, 1, 0);
  Convolution(1024, 256, 1, 14, 1, 1, 0);
  Convolution(512, 2048, 1, 7, 1, 1, 0);
  Convolution(64, 64, 4, 56, 3, 1, 1);
  Convolution(384, 384, 24, 14, 3, 1, 1);
  Convolution(192, 192, 192, 28, 3, 1, 1);
  Convolution(576, 576, 576, 14, 3, 1, 1);
}
