#include "core/backends/csource/options.h"

#include "core/backend/external_compilers.h"
#include "core/backends/csource/source_filter.h"
#include "core/ir/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::csource {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

target::Target Device(const std::string& cpu = "x86-64-v3") {
  return *target::Target::Parse("llvm -mcpu=" + cpu)->Completed();
}

absl::StatusOr<Options> With(std::map<std::string, std::string> attrs, const std::string& cpu = "x86-64-v3") {
  target::Target t;
  t.kind = "csource";
  t.attrs = std::move(attrs);
  return ParseOptions(Device(cpu), t);
}

void ExpectInvalid(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(OptionsTest, ArgumentsFollowTheTarget) {
  auto options = With({{"cflags", "-O2  -ffast-math -DN=4 -funroll-loops -mno-fma -march=x86-64-v2"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(CompilerArguments(Device(), *options), Contains("-mavx2"));
  EXPECT_THAT(CompilerArguments(Device(), *options), Contains("-O2"));
  EXPECT_THAT(CompilerArguments(Device(), *options), Not(Contains("-mavx512f")));
  EXPECT_THAT(CompilerArguments(Device("x86-64-v4"), *options), Contains("-mavx512f"));
  EXPECT_EQ(CompilerArguments(Device(), *options).back(), "-w") << "what inlay needs comes last";
}

TEST(OptionsTest, ErrorsNameTheOption) {
  ExpectInvalid(With({{"optimise", "1"}}).status(), "no attribute 'optimise'; it has cc, cflags, kernels");
  ExpectInvalid(With({{"cc", "/bin/sh"}}).status(), "'/bin/sh' is not a compiler that this server allows");
  ExpectInvalid(With({{"cc", "../gcc"}}).status(), "is not a compiler");
  for (const char* flag : {"-fplugin=/tmp/x.so",
                           "-fpass-plugin=x.so",
                           "-B/tmp",
                           "-wrapper",
                           "@file",
                           "-I/etc",
                           "-include",
                           "-specs=/tmp/s",
                           "-o",
                           "x.c",
                           "-Wl,-z",
                           "-Wa,-I/etc",
                           "-save-temps",
                           "-fdump-tree-all=/tmp/x",
                           "-fprofile-use=/etc/passwd",
                           "-fopt-info=/tmp/x",
                           "-fsanitize=address",
                           "-fno-PIC",
                           "-fpie",
                           "-flto",
                           "-fopenmp",
                           "-fstack-protector",
                           "-std=c99",
                           "-trigraphs",
                           "-mllvm",
                           "-m32",
                           "-mabi=ms",
                           "-mcmodel=large",
                           "-march=native",
                           "-mtune=native",
                           "-march=z80",
                           "-Dasm=1",
                           "-DX=asm",
                           "-DX=__attribute__",
                           "-DX=\"a\"",
                           "-DX(a)=a",
                           "-O9",
                           "-g",
                           "-E"}) {
    ExpectInvalid(With({{"cflags", flag}}).status(), std::string("'") + flag + "'");
  }
}

// Code that asks for more than the target has would be an illegal instruction somewhere.
TEST(OptionsTest, InstructionSetsStayWithinTheTarget) {
  ExpectInvalid(With({{"cflags", "-mavx512f"}}).status(), "asks for avx512f, which the target 'x86-64-v3'");
  ExpectInvalid(With({{"cflags", "-march=znver4"}}).status(), "'-march=znver4' asks for");
  EXPECT_TRUE(With({{"cflags", "-mavx512f -march=x86-64-v4 -mprefer-vector-width=512"}}, "x86-64-v4").ok());
}

TEST(ExternalCompilersTest, NamesAndPaths) {
  backend::ExternalCompilers& compilers = backend::ExternalCompilers::Global();
  EXPECT_TRUE(compilers.Find("gcc").ok());
  ExpectInvalid(compilers.Set({"gcc"}), "neither /path/of/a/compiler nor name=");
  EXPECT_EQ(compilers.Set({"/nowhere/cc"}).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(compilers.Set({"mine=/usr/bin/gcc"}).ok());
  EXPECT_TRUE(compilers.Find("mine").ok());
  ExpectInvalid(With({{"cc", "gcc"}}).status(), "it allows: mine");
  EXPECT_TRUE(With({}).ok()) << "the default is what there is";
  ASSERT_TRUE(compilers.Set({"none"}).ok());
  EXPECT_EQ(With({}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(With({}).status().message()), HasSubstr("needs a C compiler, and this server has none"));
  ASSERT_TRUE(compilers.Set({"/usr/bin/gcc"}).ok());
}

TEST(SourceFilterTest, TakesPlainC) {
  const char* source = R"c(
#include <math.h>
#  include <immintrin.h>
#define SQUARE(x) \
  ((x) * (x))
/* a comment with asm and #include "x" in it */
static inline __m256 twice(__m256 x) { return _mm256_add_ps(x, x); }  // it's \ fine
#ifdef __AVX512F__
#pragma GCC unroll 4
#endif
void f(const float *restrict x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) { float t[2][3]; const char *s = "asm \" \\ #include"; (void)s; (void)t[0][1]; }
  float y = SQUARE(1.5e-3f) + 0x1p-3f + __builtin_fabsf('a'); (void)y;
}
)c";
  EXPECT_TRUE(CheckKernelSource(source).ok()) << CheckKernelSource(source);
}

TEST(SourceFilterTest, RefusesWhatReadsFilesOrReachesTheAssembler) {
  const std::pair<const char*, const char*> cases[] = {
      {"#include \"/etc/passwd\"", "#include \"/etc/passwd\""},
      {"#include </etc/passwd>", "a kernel may include <float.h>"},
      {"\n\n#include <stdio.h>", "line 3: #include <stdio.h>"},
      {"/**/ # /**/ include /**/ <stdio.h>", "#include <stdio.h>"},
      {"#inc\\\nlude <stdio.h>", "#include"},
      {"#in\\  \nclude <stdio.h>", "#include"},
      {"#define X <stdio.h>\n#include X", "#include X"},
      {"%:include <stdio.h>", "digraph"},
      {"?\?=include <stdio.h>", "trigraph"},
      {"#include_next <math.h>", "#include_next"},
      {"#embed </etc/passwd>", "#embed"},
      {"#import <math.h>", "#import"},
      {"#pragma GCC target(\"avx512f\")", "#pragma GCC target"},
      {"#line 3 \"x\"", "#line"},
      {"#ident \"x\"", "#ident"},
      {"asm(\".incbin \\\"/etc/passwd\\\"\");", "'asm'"},
      {"__asm__(\"\");", "'__asm__'"},
      {"a\\\nsm(\"\");", "'asm'"},
      {"\\u0061sm(\"\");", "backslash"},
      {"#define CAT(a, b) a##b", "##"},
      {"int x __attribute__((section(\"x\")));", "'__attribute__'"},
      {"[[gnu::section(\"x\")]] int x;", "attribute"},
      {"[ /**/ [gnu::section(\"x\")]] int x;", "attribute"},
      {"<:<:gnu::constructor:>:> int x;", "digraph"},
      {"_Pragma(\"GCC target\")", "'_Pragma'"},
      {"__REDIRECT(f, (void), x);", "'__REDIRECT'"},
      {"_Thread_local int x;", "'_Thread_local'"},
      {"const char *s = R\"(\" asm(\"\") //)\";", "raw string"},
      {"#if __has_include(</etc/passwd>)\n#endif", "'__has_include'"},
      {"const char *t = __DATE__;", "'__DATE__'"},
      {"/* without end", "without an end"},
      {"\"without end\n", "without an end"},
      {"int \xc3\xa9;", "not ASCII"},
  };
  for (const auto& [source, text] : cases) ExpectInvalid(CheckKernelSource(source), text);
  ExpectInvalid(CheckKernelSource(absl::string_view("a\0b", 3)), "zero byte");
}

TEST(UserKernelTest, ErrorsNameTheKernel) {
  auto parse = [](const std::string& json) { return With({{"kernels", json}}).status(); };
  ExpectInvalid(parse("{"), "no JSON list");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f"}])"), "kernel 'f': 'source' must be given");
  ExpectInvalid(parse(R"([{"op": "nn.relu", "symbol": "f", "source": ""}])"),
                "kernel 'f': there is no operator 'nn.relu'");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f;", "source": ""}])"), "no name of a C function");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": "", "more": 1}])"), "unknown field 'more'");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": "", "dtypes": ["f31"]}])"), "f31");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": "", "attrs": {"alpha": 1}}])"),
                "no attribute 'alpha'");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": "", "shapes": [[-2]]}])"), "'shapes'");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": "\n#include <stdio.h>"}])"), "line 2: #include");
  ExpectInvalid(parse(R"([{"op": "relu", "symbol": "f", "source": ""}, {"op": "abs", "symbol": "f", "source": ""}])"),
                "two of this symbol");
}

TEST(UserKernelTest, MatchesWhatItImplements) {
  auto options = With({{"kernels", R"([{"op": "softmax", "symbol": "f", "source": "", "attrs": {"axis": -1},
                                        "shapes": [[-1, 8]]}])"}});
  ASSERT_TRUE(options.ok()) << options.status();
  const UserKernel& kernel = options->kernels[0];
  auto match = [&](std::vector<int64_t> shape, int64_t axis, ir::DType dtype) {
    ir::testing::FunctionBuilder b;
    auto x = b.Param("x", ir::MakeTensorType(dtype, shape));
    b.Return({b.Call("softmax", {x}, {{"axis", axis}})});
    return CheckMatch(kernel, b.function.body.bindings[0]);
  };
  EXPECT_TRUE(match({3, 8}, -1, ir::DType::kF32).ok()) << match({3, 8}, -1, ir::DType::kF32);
  EXPECT_TRUE(match({3, 8}, 1, ir::DType::kF32).ok());
  EXPECT_THAT(std::string(match({3, 8}, 0, ir::DType::kF32).message()), HasSubstr("attribute axis is 0"));
  EXPECT_THAT(std::string(match({3, 9}, 1, ir::DType::kF32).message()), HasSubstr("the kernel takes [-1, 8]"));
  EXPECT_THAT(std::string(match({3, 8}, 1, ir::DType::kF64).message()), HasSubstr("the kernel takes f32"));
}

}  // namespace
}  // namespace inlay::csource
