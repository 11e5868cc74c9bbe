#include "core/artifact/mlf.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/artifact/mlf_constants.h"
#include "core/artifact/mlf_entry.h"
#include "core/artifact/mlf_names.h"
#include "core/artifact/static_library.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/runtime/kernel_abi.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::artifact {
namespace {

using ::testing::HasSubstr;

constexpr char kSymbol[] = "inlay_0123456789abcdef0123456789abcdef";

// y = scale(x, w), as a target of kind "c" has it.
class MlfTest : public ::testing::Test {
 protected:
  MlfTest() {
    proto::StaticLibraryManifest* manifest = library_.mutable_manifest();
    manifest->set_format_version(kStaticLibraryFormatVersion);
    manifest->set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
    manifest->set_backend("b");
    manifest->set_backend_version("1");
    manifest->set_target_triple("c");
    proto::PrimitiveFunction* f = manifest->add_functions();
    f->set_symbol(kSymbol);
    for (int i = 0; i < 3; ++i) {
      proto::TensorType* type = i < 2 ? f->add_inputs() : f->add_outputs();
      type->set_dtype(proto::F32);
      type->add_dims()->set_value(2);
    }
    AddSource(absl::StrCat(kSymbol, ".c"), absl::StrCat("#include \"inlay_ops.h\"\nint32_t ", kSymbol, "(void);\n"));
    AddSource("inlay_ops.h", "/* ops */\n");
    const runtime::TensorType type = {runtime::DType::kF32, {2}};
    plan_.inputs = {{"default", type}};
    plan_.outputs = {{"y:0", type}};
    plan_.params = {{"w", type}};
    plan_.param_load_only = {false};
    runtime::PlanFunction function;
    function.symbol = kSymbol;
    function.num_inputs = 2;
    function.num_outputs = 1;
    function.info.backend = "b";
    function.info.ops = {"mul"};
    plan_.functions = {function};
    for (const auto kind : {runtime::BufferKind::kInput, runtime::BufferKind::kParam, runtime::BufferKind::kOutput}) {
      runtime::Buffer buffer;
      buffer.kind = kind;
      buffer.bytes = 8;
      plan_.buffers.push_back(buffer);
    }
    runtime::Step step;
    step.function = 0;
    step.args = {0, 1, 2};
    step.name = "a */ comment\n";
    plan_.run_steps = {step};
    request_.libraries = {&library_};
    request_.plan = &plan_;
    proto::ParamRef param;
    param.set_name("w");
    param.mutable_type()->set_dtype(proto::F32);
    param.mutable_type()->add_dims()->set_value(2);
    param.set_digest(std::string(Digest::Of(data_).bytes()));
    request_.params = {param};
    request_.param_source = [this](const Digest&, const std::function<absl::Status(absl::string_view)>& sink) {
      return sink(data_);
    };
    request_.unpacked_api = true;
    request_.c_interface = true;
    request_.output = dir_.path() + "/model.tar";
  }

  void AddSource(const std::string& name, const std::string& text) {
    proto::SourceFile* source = library_.add_sources();
    source->set_name(name);
    source->set_text(text);
  }

  void ExpectRefused(absl::StatusCode code, const std::string& text) const {
    const absl::Status status = WriteModelLibrary(request_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  TempDir dir_ = *TempDir::Create("mlf_test");
  std::string data_ = std::string("\0\0\x80\x3f\0\0\xc0\x7f", 8);  // 1, NaN
  proto::StaticLibrary library_;
  runtime::ExecutionPlan plan_;
  MlfRequest request_;
};

TEST_F(MlfTest, WritesTheSameTarEveryTime) {
  ASSERT_TRUE(WriteModelLibrary(request_).ok()) << WriteModelLibrary(request_);
  const std::string first = *ReadFile(request_.output);
  ASSERT_TRUE(WriteModelLibrary(request_).ok());
  EXPECT_EQ(*ReadFile(request_.output), first);
  EXPECT_TRUE(absl::StrContains(first, "int32_t inlaygen_default_mul_0(void);"));  // renamed
  EXPECT_FALSE(absl::StrContains(first, absl::StrCat("int32_t ", kSymbol)));
}

TEST_F(MlfTest, NamesAreC) {
  plan_.inputs.push_back({"x.y", plan_.inputs[0].type});
  plan_.inputs.push_back({"x/y", plan_.inputs[0].type});
  plan_.inputs.push_back({"1", plan_.inputs[0].type});
  const MlfNames names = *MakeMlfNames(plan_, request_.libraries, "kws_2");
  EXPECT_THAT(names.inputs, ::testing::ElementsAre("default_", "x_y", "x_y_2", "input_1"));
  EXPECT_THAT(names.outputs, ::testing::ElementsAre("y_0"));
  EXPECT_THAT(names.kernels, ::testing::ElementsAre("inlaygen_kws_2_mul_0"));
  for (const char* bad : {"", "a b", "a-b", "a;b"}) {
    EXPECT_EQ(MakeMlfNames(plan_, request_.libraries, bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(MlfTest, NodesNamesEndNoComment) {
  const MlfNames names = *MakeMlfNames(plan_, request_.libraries, "default");
  EXPECT_TRUE(absl::StrContains(MlfEntry(request_, names), "/* a __ comment_ */"));
}

TEST_F(MlfTest, ConstantsKeepTheirValues) {
  const MlfNames names = *MakeMlfNames(plan_, request_.libraries, "default");
  const MlfConstants constants = *WriteMlfConstants(request_, names);
  EXPECT_TRUE(absl::StrContains(constants.source, "const float inlaygen_default_param_0[2] = {\n    1.0f, NAN};"))
      << constants.source;
  EXPECT_EQ(constants.bytes, 8);
}

TEST_F(MlfTest, RefusesOtherBytesThanTheParameters) {
  data_[0] = 1;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "parameter 'w': its bytes are not those of f32[2]");
}

TEST_F(MlfTest, RefusesWorkAtLoad) {
  plan_.load_steps = plan_.run_steps;
  ExpectRefused(absl::StatusCode::kUnimplemented, "is work to be done when the model is loaded, by b");
}

TEST_F(MlfTest, RefusesBackendsWithLibraries) {
  library_.mutable_manifest()->add_runtime_components("onednn");
  ExpectRefused(absl::StatusCode::kUnimplemented, "code of the backend b needs its library");
}

TEST_F(MlfTest, RefusesDamagedSources) {
  library_.mutable_sources(0)->set_text("");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, absl::StrCat("no source defines ", kSymbol));
  library_.mutable_sources(0)->set_name("../x.c");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "the source '../x.c' is no C file");
  library_.add_objects();
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "both sources and objects");
}

TEST_F(MlfTest, RefusesTwoFilesOfOneName) {
  AddSource("inlay_ops.h", "/* others */\n");
  ExpectRefused(absl::StatusCode::kFailedPrecondition,
                "two partitions bring different files runtime/include/inlay_ops.h");
}

}  // namespace
}  // namespace inlay::artifact
