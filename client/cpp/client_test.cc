// What of the client needs no server: modules and files, configurations, damaged input. With one: tests/seeds/cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "inlay/inlay.h"
#include "proto/ir.pb.h"

namespace inlay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

void WriteFile(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Tensor Matrix() { return *MakeTensor<float>({2, 2}, {1, 2, 3, 4}); }

IRModule SmallModule() {
  FunctionBuilder b;
  const auto x = b.Param("x", "f32", {1, 2});
  return *b.Finish({b.Op("matmul", {x, b.Weight(Matrix(), "w")})}, {"y"});
}

TEST(TensorTest, ValuesAndShapes) {
  const Tensor tensor = Matrix();
  EXPECT_EQ(DTypeOf(tensor), "f32");
  EXPECT_THAT(Values<float>(tensor), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(Values<double>(tensor).empty());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0);
  EXPECT_EQ(EmptyTensor("bf16", {0, 3})->numel(), 0);
  EXPECT_EQ(EmptyTensor("i64", {})->numel(), 1);
  EXPECT_THAT(EmptyTensor("f8", {1}).status().message(), HasSubstr("there is no dtype 'f8'"));
  EXPECT_EQ(EmptyTensor("f32", {-1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EmptyTensor("f32", {INT64_MAX, 8}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeTensor<int32_t>({3}, {1, 2}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(IRModuleTest, SavedAndLoaded) {
  const IRModule module = SmallModule()
                              .WithAttr("woof", "woof")
                              .WithAttr("sizes", std::vector<int64_t>{1, 2})
                              .WithAttr("kind", DType{"bf16"});
  ASSERT_TRUE(module.Save(Path("m.inlay")).ok());
  const absl::StatusOr<IRModule> loaded = LoadModule(Path("m.inlay"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->ToBytes(), module.ToBytes());
  EXPECT_EQ(loaded->weight_bytes(), 16);
  EXPECT_EQ(loaded->attrs(), module.attrs());
  EXPECT_EQ(std::get<std::string>(loaded->attrs().at("woof").value), "woof");
  EXPECT_EQ(loaded->signature().inputs[0].name, "x");
  EXPECT_THAT(loaded->signature().inputs[0].shape, ElementsAre(1, 2));
  EXPECT_EQ(loaded->signature().outputs[0].name, "y");
  // A module without its weights can be compiled where the server has them, but not saved.
  EXPECT_EQ(IRModule::FromBytes(module.ToBytes())->Save(Path("n.inlay")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(IRModule::FromBytes(module.ToBytes(), {Matrix()})->Save(Path("n.inlay")).ok());
}

TEST(IRModuleTest, DamagedFiles) {
  ASSERT_TRUE(SmallModule().Save(Path("d.inlay")).ok());
  const std::string good = ReadFile(Path("d.inlay")), weights = ReadFile(Path("d.inlay.safetensors"));
  EXPECT_EQ(LoadModule(Path("nothing.inlay")).status().code(), absl::StatusCode::kNotFound);
  for (const std::string& bytes : {std::string(), std::string("not a module"), good.substr(0, good.size() / 2)}) {
    WriteFile(Path("d.inlay"), bytes);
    EXPECT_THAT(LoadModule(Path("d.inlay")).status().message(), HasSubstr("d.inlay is no IRModule, or damaged"));
  }
  WriteFile(Path("d.inlay"), good);
  for (const std::string& bytes : {std::string("x"), weights.substr(0, weights.size() - 1), weights.substr(0, 20)}) {
    WriteFile(Path("d.inlay.safetensors"), bytes);
    const absl::Status status = LoadModule(Path("d.inlay")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("d.inlay.safetensors"));
  }
  std::remove(Path("d.inlay.safetensors").c_str());
  EXPECT_EQ(LoadModule(Path("d.inlay")).status().code(), absl::StatusCode::kNotFound);
}

// Of open sizes: x is [rows, 2*columns].
IRModule OpenModule() {
  FunctionBuilder b;
  return *b.Finish({b.Op("tanh", {b.Param("x", "f32", {"rows", "2*columns"})})}, {"y"});
}

TEST(IRModuleTest, Bounds) {
  const IRModule open = OpenModule();
  EXPECT_TRUE(open.bounds().empty());
  EXPECT_TRUE(open.required_extents().empty());
  const IRModule module = *open.WithRequiredExtents({"rows - columns", "rows-9", "7"})
                               ->WithBounds({{"rows", {4, 9}}, {"columns", {std::nullopt, 3}}});
  // The same texts as Python's, which are in digests.
  EXPECT_THAT(module.required_extents(), ElementsAre("-columns+3", "rows-4", "-rows+9", "-columns+rows"));
  const std::map<std::string, Bounds> want = {{"columns", {std::nullopt, 3}}, {"rows", {4, 9}}};
  EXPECT_EQ(module.bounds(), want);
  ASSERT_TRUE(module.Save(Path("b.inlay")).ok());
  EXPECT_EQ(LoadModule(Path("b.inlay"))->bounds(), want);
  EXPECT_THAT(module.WithBounds({})->required_extents(), ElementsAre("-columns+rows"));
  EXPECT_EQ(module.WithRequiredExtents({})->ToBytes(), open.ToBytes());
  // What others say of one symbol is a bound.
  const std::map<std::string, Bounds> read = {{"rows", {4, 8}}};
  EXPECT_EQ(open.WithRequiredExtents({"2*rows-7", "17-2*rows", "100-rows", "8*(rows/8)-rows"})->bounds(), read);
}

TEST(IRModuleTest, BoundsThatAreRefused) {
  const IRModule open = OpenModule();
  const auto refused = [](const absl::StatusOr<IRModule>& module, const std::string& text) {
    EXPECT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(module.status().message(), HasSubstr(text));
  };
  refused(open.WithBounds({{"row", {4, 9}}}), "no input has the symbol 'row'; main has 'columns', 'rows'");
  refused(open.WithBounds({{"2*columns", {4, 9}}}), "no input has the symbol '2*columns'; main has 'columns', 'rows'");
  refused(SmallModule().WithBounds({{"rows", {4, 9}}}), "no input has the symbol 'rows'; main has none");
  refused(open.WithBounds({{"rows", {9, 4}}}), "no size of 'rows' is within its bounds, 9 to 4");
  refused(open.WithBounds({{"rows", {std::nullopt, -1}}}), "no size of 'rows' is within its bounds, 0 to -1");
  refused(open.WithBounds({{"rows", {INT64_MIN, 4}}}), "overflows");
  refused(open.WithRequiredExtents({"rows-k"}), "no input has the symbol 'k'; main has 'columns', 'rows'");
  refused(open.WithRequiredExtents({"rows-"}), "no input has the symbol 'rows-'");
  refused(open.WithRequiredExtents({""}), "an expression is empty");
  refused(open.WithRequiredExtents({"3-4"}), "'3-4' is -1, and must be 0 or more");
}

// Whatever a file holds.
TEST(IRModuleTest, BoundsAtTheEndsOfIntegers) {
  proto::IRModule proto;
  EXPECT_TRUE(proto.ParseFromString(OpenModule().ToBytes()));
  auto& required = *(*proto.mutable_functions()->at("main").mutable_attrs())["required_extents"].mutable_strings();
  // f(n) is no function of ours, so the text is no expression, and stays as it is.
  for (const char* text :
       {"f(n)-9223372036854775807-1", "5-9223372036854775807*g(n)-g(n)", "rows-9223372036854775807", "", "((", "k"}) {
    required.add_v(text);
  }
  const IRModule module = *IRModule::FromBytes(proto.SerializeAsString());
  EXPECT_EQ(module.required_extents().size(), 6);
  std::map<std::string, Bounds> bounds = module.bounds();
  EXPECT_EQ(bounds["f(n)"].least, INT64_MAX);
  EXPECT_EQ(bounds["g(n)"].most, 0);
  EXPECT_EQ(bounds["rows"].least, INT64_MAX);
}

TEST(ShapeTest, Forms) {
  const std::vector<int64_t> numbers = {0, 3};
  const std::string symbol = "n";
  EXPECT_EQ(Shape(numbers), Shape({0, 3u}));
  EXPECT_FALSE(Shape(numbers).is_open());
  EXPECT_EQ(Shape().ToString(), "[]");
  const Shape shape = {symbol, 0, "2*m", int64_t{1} << 40};
  EXPECT_TRUE(shape.is_open());
  EXPECT_EQ(shape.ToString(), "[n, 0, 2*m, 1099511627776]");
  EXPECT_THAT(shape.values(), ElementsAre(-1, 0, -1, int64_t{1} << 40));
  EXPECT_EQ(shape.dims()[0].symbol(), "n");
  EXPECT_EQ(shape.dims()[1].symbol(), "");
  EXPECT_NE(shape, Shape({"n", 0, "m*2", int64_t{1} << 40}));
}

TEST(BuilderTest, OpenSizes) {
  FunctionBuilder b;
  const auto x = b.Param("x", "f32", {"n * 2", 4, "(h-1)/2 + 1", "2*3"});
  const auto y = b.Op("reshape", {x}, {{"shape", Shape{"n*8", "h/2*3 + 3*((h+1)/2) - 3*(h/2)", 2}}});
  const auto z = b.Op("full", {}, {{"shape", Shape{"n+1"}}, {"value", 1.0}, {"dtype", DType{"f32"}}});
  const auto fixed = b.Op("reshape", {x}, {{"shape", Shape{"4/2", -1}}});
  const auto called = b.CallPacked("f", {x}, {"i64", {"n", 3}});
  const IRModule module = *b.Finish({y, z, fixed, called}, {"y", "z", "fixed", "called"});
  // The texts that Python's builder makes, which are in digests.
  const TensorSpec spec = module.signature().inputs[0];
  EXPECT_EQ(spec.dims, Shape({"2*n", 4, "((h+1)/2)", 6}));
  EXPECT_THAT(spec.shape, ElementsAre(-1, 4, -1, 6));
  proto::IRModule proto;
  ASSERT_TRUE(proto.ParseFromString(module.ToBytes()));
  const proto::Block& body = proto.functions().at("main").body();
  const auto& attrs = body.bindings(0).attrs();
  EXPECT_THAT(attrs.at("shape").ints().v(), ElementsAre(-1, -1, 2));
  EXPECT_THAT(attrs.at("dims").strings().v(), ElementsAre("8*n", "3*((h+1)/2)", ""));
  EXPECT_EQ(body.bindings(1).attrs().at("dtype").dtype(), proto::F32);
  EXPECT_THAT(body.bindings(1).attrs().at("dims").strings().v(), ElementsAre("n+1"));
  EXPECT_THAT(body.bindings(2).attrs().at("shape").ints().v(), ElementsAre(2, -1));
  EXPECT_EQ(body.bindings(2).attrs().count("dims"), 0);
  EXPECT_EQ(body.bindings(3).call_packed().result().tensor().dims(0).symbol(), "n");
}

TEST(BuilderTest, SizesThatThereAreNot) {
  const auto refused = [](const Shape& shape) {
    FunctionBuilder b;
    b.SetLocation("here");
    return std::string(b.Finish({b.Param("x", "f32", shape)}, {"y"}).status().message());
  };
  EXPECT_EQ(refused({"n", ""}), "here: parameter 'x': an extent's text is empty");
  EXPECT_EQ(refused({"n", -1}), "here: parameter 'x': a negative extent in [n, -1]");
  EXPECT_EQ(refused({"3-4"}), "here: parameter 'x': a negative extent in [3-4]");
  FunctionBuilder b;
  const auto x = b.Op("reshape", {b.Param("x", "f32", {"n"})}, {{"shape", Shape{""}}});
  EXPECT_EQ(b.Finish({x}, {"y"}).status().message(), "reshape: attribute shape: an extent's text is empty");
  FunctionBuilder c;
  const auto cast = c.Op("cast", {c.Param("x", "f32", {"n"})}, {{"dtype", DType{"f33"}}});
  EXPECT_EQ(c.Finish({cast}, {"y"}).status().message(), "cast: attribute dtype: there is no dtype 'f33'");
  FunctionBuilder d;
  EXPECT_EQ(d.Finish({d.CallPacked("f", {}, {"f33", {1}})}, {"y"}).status().message(),
            "the result of 'f': there is no dtype 'f33'");
}

TEST(BuilderTest, ErrorsAreKept) {
  FunctionBuilder b, other;
  b.SetLocation("here");
  const auto x = b.Param("x", "f33", {1});
  EXPECT_THAT(b.Finish({x}, {"y"}).status().message(), HasSubstr("here: parameter 'x': there is no dtype 'f33'"));
  FunctionBuilder c;
  c.Op("relu", {other.Param("x", "f32", {1})});
  EXPECT_THAT(c.Finish({c.Param("z", "f32", {1})}, {"z"}).status().message(), HasSubstr("a Var of another builder"));
  EXPECT_EQ(FunctionBuilder().Finish({}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LibraryTest, WhatIsNoLibrary) {
  EXPECT_EQ(LoadLibrary(Path("nothing.so")).status().code(), absl::StatusCode::kNotFound);
  WriteFile(Path("text.so"), "no library");
  EXPECT_THAT(LoadLibrary(Path("text.so")).status().message(), HasSubstr("text.so is not a shared library"));
  WriteFile(Path("empty.so"), "");
  EXPECT_THAT(LoadLibrary(Path("empty.so")).status().message(), HasSubstr("empty.so is not a shared library"));
  const absl::Status status = LoadLibrary("/lib/x86_64-linux-gnu/libm.so.6").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(KindOf(status), ErrorKind::kLoad);
  EXPECT_THAT(status.message(), HasSubstr("is a shared library, but not one that inlay exported"));
  // Cut off anywhere: an error, never a crash.
  const std::string libm = ReadFile("/lib/x86_64-linux-gnu/libm.so.6");
  for (const size_t size :
       {size_t{4}, size_t{40}, size_t{64}, size_t{100}, size_t{4096}, libm.size() / 2, libm.size() - 1}) {
    WriteFile(Path("cut.so"), libm.substr(0, size));
    EXPECT_EQ(LoadLibrary(Path("cut.so")).status().code(), absl::StatusCode::kFailedPrecondition) << size;
  }
}

TEST(ModuleTest, Functions) {
  const Module module =
      FunctionModule({{"double", Function::FromTyped([](int64_t x) { return 2 * x; })},
                      {"fail", Function::FromTyped([]() { TVM_FFI_THROW(ValueError) << "no\nmore"; })}});
  EXPECT_EQ(module.ToString(), "the module 'double, fail' of kind 'packed_function'");
  EXPECT_EQ(Call(module["double"], {Any(21)})->cast<int>(), 42);
  const absl::Status failed = Call(module["fail"], {}).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.message(), "no");
  EXPECT_EQ(KindOf(failed), ErrorKind::kRun);
  EXPECT_EQ(Call(module["double"], {Any("x")}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(module.signature().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(module.Run({Matrix()}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ClientTest, WithoutAServer) {
  unsetenv("INLAY_SERVER");
  setenv("XDG_RUNTIME_DIR", testing::TempDir().c_str(), 1);
  const absl::Status nowhere = Client::Connect().status();
  EXPECT_EQ(KindOf(nowhere), ErrorKind::kServerUnavailable);
  EXPECT_THAT(nowhere.message(), HasSubstr("start one with `inlay serve`, or name a server in $INLAY_SERVER"));
  setenv("INLAY_SERVER", "unix:/nowhere/s.sock", 1);
  const absl::StatusOr<std::shared_ptr<Client>> client = Client::Connect();
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->address(), "unix:/nowhere/s.sock");
  EXPECT_TRUE((*client)->is_local());
  const absl::Status status = (*client)->GetServerInfo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(KindOf(status), ErrorKind::kServerUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no server at unix:/nowhere/s.sock"));
}

}  // namespace
}  // namespace inlay
