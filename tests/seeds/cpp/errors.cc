// What goes wrong: wrong tensors, damaged libraries, deadlines, cancelled calls, no server.
#include <thread>

#include "support.h"

namespace seeds {
namespace {

using inlay::ErrorKind;
using inlay::KindOf;
using testing::AnyOf;
using testing::HasSubstr;

class Errors : public Seeds {};

// In this process and in the daemon.
TEST_F(Errors, WrongTensors) {
  const inlay::Executable ex = Build();
  const inlay::TensorSpec spec = ex.signature().inputs[0];
  std::vector<int64_t> shape = spec.shape;
  shape.back() += 1;
  for (const inlay::Module& module : {Get(ex.Jit()), Get(ex.RemoteJit())}) {
    SCOPED_TRACE(module.kind());
    const auto refused = [&](const std::vector<inlay::Tensor>& inputs, const std::string& text) {
      const absl::Status status = module.Run(inputs).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(KindOf(status), ErrorKind::kRun);
      EXPECT_THAT(Text(status), HasSubstr(text));
    };
    refused({Get(inlay::EmptyTensor("f32", shape))}, "input 0");
    refused({Get(inlay::EmptyTensor("f64", spec.shape))}, "f32[");
    refused({Get(inlay::EmptyTensor("f32", {}))}, "input 0");
    refused({}, "input");
    EXPECT_THAT(Text(module.Run(std::map<std::string, inlay::Tensor>{{"nobody", Get(inlay::EmptyTensor("f32", {}))}})),
                HasSubstr("main takes the inputs " + spec.name + ", not nobody"));
    ExpectRuns(module);
  }
}

// A module that is wrong: the server says where.
TEST_F(Errors, WrongModules) {
  inlay::FunctionBuilder b;
  b.SetLocation("layer 1");
  const auto x = b.Param("x", "f32", {2, 3});
  const absl::Status status = inlay::Build(Get(b.Finish({b.Op("matmul", {x, x})}, {"y"}))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KindOf(status), ErrorKind::kCompile);
  EXPECT_THAT(Text(status), HasSubstr("layer 1"));
  // A weight that neither side has.
  const auto lost = Get(inlay::IRModule::FromBytes([] {
    inlay::FunctionBuilder c;
    const std::vector<float> values(9, 0.375f);
    const auto w = c.Weight(Get(inlay::MakeTensor<float>({3, 3}, values)), "lost");
    return Get(c.Finish({c.Op("matmul", {c.Param("x", "f32", {2, 3}), w})}, {"y"})).ToBytes();
  }()));
  EXPECT_EQ(inlay::Build(lost).status().code(), absl::StatusCode::kFailedPrecondition);
}

// What can't be updated in place, and what can: in this process and in the daemon.
TEST_F(Errors, Updates) {
  inlay::FunctionBuilder b;
  const auto cache = b.Param("cache", "f32", {4, 3}), row = b.Param("row", "f32", {1, 3}),
             at = b.Param("at", "i64", {1, 1});
  const auto made = b.Op("scatter_nd", {cache, at, row});
  const inlay::IRModule module = Get(b.Finish({b.Op("neg", {made}), made}, {"y", "new"}));
  EXPECT_THAT(Text(module.WithUpdates({{"now", "cache"}})), HasSubstr("no output 'now'"));
  EXPECT_THAT(Text(module.WithUpdates({{"new", "cash"}})), HasSubstr("no input 'cash'"));
  EXPECT_THAT(Text(module.WithUpdates({{"new", "cache"}, {"y", "cache"}})),
              HasSubstr("two outputs update input 'cache'"));
  EXPECT_THAT(Text(inlay::Build(Get(module.WithUpdates({{"new", "row"}})))),
              HasSubstr("is the new value of input 1 'row'"));
  const inlay::Executable ex = Get(inlay::Build(Get(module.WithUpdates({{"new", "cache"}}))));
  const inlay::Tensor place = Get(inlay::MakeTensor<int64_t>({1, 1}, {2})),
                      values = Get(inlay::MakeTensor<float>({1, 3}, {7, 8, 9}));
  for (const inlay::Module& run : {Get(ex.Jit()), Get(ex.RemoteJit())}) {
    SCOPED_TRACE(run.kind());
    const inlay::Tensor rows = Get(inlay::MakeTensor<float>({4, 3}, std::vector<float>(12, 1.0f)));
    const std::vector<inlay::Tensor> results = Get(run.Run({rows, values, place}));
    ASSERT_EQ(results.size(), 2);
    EXPECT_EQ(results[1].data_ptr(), rows.data_ptr());
    EXPECT_EQ(static_cast<const float*>(rows.data_ptr())[5], 1);
    EXPECT_EQ(static_cast<const float*>(rows.data_ptr())[7], 8);
    EXPECT_EQ(static_cast<const float*>(results[0].data_ptr())[8], -9);
  }
}

// A run of other sizes than the bounds': in this process, in the daemon, of a library.
TEST_F(Errors, Bounds) {
  const inlay::IRModule open = Get(inlay::LoadModule((Data() / "open.inlay").string()));
  EXPECT_THAT(Text(open.WithBounds({{"row", {4, 9}}})),
              HasSubstr("no input has the symbol 'row'; main has 'columns', 'rows'"));
  inlay::CompilationConfig config = inlay::config::Cpu();
  config.executor = "vm";
  const auto related = Get(open.WithRequiredExtents({"rows-columns"}));
  const inlay::IRModule bounded = Get(related.WithBounds({{"rows", {4, 9}}, {"columns", {1, std::nullopt}}}));
  const inlay::Executable ex = Get(inlay::Build(bounded, config));
  ASSERT_TRUE(ex.ExportLibrary(File("open.so")).ok());
  for (const inlay::Module& run : {Get(ex.Jit()), Get(ex.RemoteJit()), Get(inlay::LoadLibrary(File("open.so")))}) {
    SCOPED_TRACE(run.kind());
    const auto text = [&](int64_t rows, int64_t columns) {
      const auto results = run.Run({Get(inlay::EmptyTensor("f32", {rows, columns}))});
      if (results.ok()) return std::string();
      EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(KindOf(results.status()), ErrorKind::kRun);
      return Text(results);
    };
    EXPECT_EQ(text(4, 4), "");
    EXPECT_EQ(text(9, 1), "");
    EXPECT_THAT(text(3, 1), HasSubstr("the model needs 'rows' to be 4 or more; it is 3 from input 'x'"));
    EXPECT_THAT(text(10, 1), HasSubstr("the model needs 'rows' to be 9 or less; it is 10 from input 'x'"));
    EXPECT_THAT(text(9, 0), HasSubstr("the model needs 'columns' to be 1 or more; it is 0 from input 'x'"));
    EXPECT_THAT(text(5, 6), HasSubstr("the model needs '-columns+rows' to be 0 or more; it is -1"));
  }
}

TEST_F(Errors, DamagedLibraries) {
  ASSERT_TRUE(Build().ExportLibrary(File("a.so")).ok());
  const std::string good = Bytes(File("a.so"));
  for (const size_t size : {size_t{0}, size_t{64}, good.size() / 3, good.size() - 1}) {
    std::ofstream(File("cut.so"), std::ios::binary) << good.substr(0, size);
    const absl::Status status = inlay::LoadLibrary(File("cut.so")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << size;
    EXPECT_EQ(KindOf(status), ErrorKind::kLoad);
    EXPECT_THAT(Text(status), HasSubstr("cut.so"));
  }
  // Its manifest says that it is for another machine.
  std::string other = good;
  const std::string manifest = Get(inlay::ReadManifest(File("a.so")));
  const size_t at = other.find(manifest), triple = manifest.find("\"triple\":\"x86_64");
  ASSERT_NE(triple, std::string::npos);
  other.replace(at + triple, 16, "\"triple\":\"mips64");
  std::ofstream(File("other.so"), std::ios::binary) << other;
  EXPECT_THAT(Text(inlay::LoadLibrary(File("other.so"))), AnyOf(HasSubstr("mips64"), HasSubstr("x86_64")));
  other = good;
  other.replace(at, 8, "{{{{{{{{");
  std::ofstream(File("broken.so"), std::ios::binary) << other;
  EXPECT_THAT(Text(inlay::LoadLibrary(File("broken.so"))), HasSubstr("its manifest can't be read"));
}

TEST_F(Errors, NowhereToWrite) {
  const absl::Status status = Build().ExportLibrary(File("nobody/a.so"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(status), HasSubstr("there is no folder"));
}

TEST_F(Errors, NoServer) {
  inlay::BuildOptions options;
  options.client = Get(inlay::Client::Connect("unix:" + File("nobody.sock")));
  const absl::Status status = inlay::Build(Model(), "llvm", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(KindOf(status), ErrorKind::kServerUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("nobody.sock"));
}

// A model that takes the server a while, so many times as long.
inlay::IRModule Slow(int times = 1) {
  inlay::FunctionBuilder b;
  auto x = b.Param("x", "f32", {61, 67});
  for (int i = 0; i < 40 * times; ++i) {
    x = b.Op("exp", {b.Op("reshape", {x}, {{"shape", std::vector<int64_t>{67 - i % 2 * 6, 61 + i % 2 * 6}}})});
  }
  return Get(b.Finish({x}, {"y"}));
}

TEST_F(Errors, Deadlines) {
  inlay::BuildOptions options;
  options.client = Get(inlay::Client::Connect());
  ASSERT_TRUE(options.client->GetServerInfo().ok());
  options.timeout = absl::Nanoseconds(1);
  const absl::Status status = inlay::Build(Slow(), "llvm", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(KindOf(status), ErrorKind::kDeadlineExceeded);
  inlay::ExportOptions none;
  none.timeout = absl::ZeroDuration();
  EXPECT_EQ(Build().ExportLibrary(File("a.so"), none).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(fs::exists(File("a.so")));
}

// From another thread, once the server has begun; what is given it later does not begin.
TEST_F(Errors, Cancelled) {
  inlay::BuildOptions options;
  options.client = Get(inlay::Client::Connect());
  absl::Status status;
  // A server that is done before this process hears of its progress is no failure: another try, of more work.
  for (int times = 2; times < 64 && status.ok(); times *= 2) {
    options.cancellation = std::make_shared<inlay::Cancellation>();
    options.progress = [&](const inlay::Progress&) {
      std::thread([&] { options.cancellation->Cancel(); }).join();  // the call hears of it before it reads on
    };
    status = inlay::Build(Slow(times), "llvm", options).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(KindOf(status), ErrorKind::kCancelled);
  options.progress = nullptr;
  EXPECT_EQ(inlay::Build(Slow(), "llvm", options).status().code(), absl::StatusCode::kCancelled);
  options.cancellation = nullptr;
  EXPECT_TRUE(inlay::Build(Slow(), "llvm", options).ok());
}

// A deadline for each run in the daemon.
TEST_F(Errors, RunsInTheDaemonEndInTime) {
  inlay::RemoteJitOptions options;
  options.run.timeout = absl::ZeroDuration();
  const inlay::Module remote = Get(Build().RemoteJit(options));
  EXPECT_THAT(Text(remote.Run(Inputs(Get(remote.signature())))), HasSubstr("run: not finished within the timeout"));
}

}  // namespace
}  // namespace seeds
