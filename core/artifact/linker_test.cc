#include "core/artifact/linker.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "core/artifact/imports.h"
#include "core/artifact/planner.h"
#include "core/artifact/testing/test_library.h"
#include "core/base/file_system.h"
#include "core/base/subprocess.h"

namespace inlay::artifact {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT

std::string TmpPath(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::string Absolute(const std::string& path) {
  char* cwd = getcwd(nullptr, 0);
  std::string result = std::string(cwd) + "/" + path;
  std::free(cwd);
  return result;
}

const LinkToolchain& Toolchain() {
  static const LinkToolchain* toolchain = [] {
    auto found = FindLinkToolchain({Absolute("core/runtime")}, {Absolute("../tvm_ffi/lib")});
    if (!found.ok()) {
      std::cerr << found.status() << std::endl;
      std::abort();
    }
    return new LinkToolchain(*found);
  }();
  return *toolchain;
}

struct Request {
  TestModel model;
  BuiltPlan built;
  LinkRequest link;
  explicit Request(bool with_fail = false) : model(with_fail) { Plan(); }
  void Plan() {
    auto plan = BuildPlan(model.builder.module(), model.manifests());
    if (!plan.ok()) std::cerr << plan.status() << std::endl;
    built = *plan;
    link.plan = &built.plan;
    link.libraries = model.library_pointers();
    link.params.clear();
    for (const auto& p : built.params) {
      link.params.emplace_back();
      link.params.back().set_digest(std::string(p->digest.bytes()));
    }
    link.param_source = [this](const Digest&, const std::function<absl::Status(absl::string_view)>& sink) {
      const std::string bytes = model.weight_bytes();
      absl::Status s = sink(absl::string_view(bytes).substr(0, 1001));  // in pieces
      return s.ok() ? sink(absl::string_view(bytes).substr(1001)) : s;
    };
  }
  absl::StatusOr<LinkResult> Link(const std::string& name) {
    link.output = TmpPath(name);
    return LinkLibrary(Toolchain(), link);
  }
};

using Function = int (*)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

std::string TakeError() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return "no error";
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  std::string text =
      std::string(cell->kind.data, cell->kind.size) + ": " + std::string(cell->message.data, cell->message.size);
  TVMFFIObjectDecRef(error);
  return text;
}

// "" or what the program said.
std::string RunTool(std::vector<std::string> argv) {
  SubprocessOptions options;
  options.argv = std::move(argv);
  options.env = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  return std::string(RunSubprocess(std::move(options), absl::Seconds(60)).status().message());
}

// An exported library, called as tvm-ffi does.
class Loaded {
 public:
  explicit Loaded(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) std::cerr << dlerror() << std::endl;
  }
  ~Loaded() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  bool ok() const { return handle_ != nullptr; }
  Function Get(const std::string& name) const {
    return reinterpret_cast<Function>(dlsym(handle_, ("__tvm_ffi_" + name).c_str()));
  }
  // "" or the error.
  std::string Call(const std::string& name, const std::vector<TVMFFIAny>& args, TVMFFIAny* result) const {
    *result = {};
    return Get(name)(nullptr, args.data(), static_cast<int32_t>(args.size()), result) == 0 ? "" : TakeError();
  }

 private:
  void* handle_;
};

// A float vector as an argument.
struct Vec {
  std::vector<float> data = std::vector<float>(kSize);
  int64_t shape[1] = {kSize};
  int64_t strides[1] = {1};
  DLTensor tensor = {data.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  TVMFFIAny any() {
    TVMFFIAny a = {};
    a.type_index = kTVMFFIDLTensorPtr;
    a.v_ptr = &tensor;
    return a;
  }
};

// Items of the Array that main returns.
std::vector<DLTensor*> Items(const TVMFFIAny& array) {
  EXPECT_EQ(array.type_index, kTVMFFIArray);
  const auto* cell = reinterpret_cast<const TVMFFISeqCell*>(array.v_obj + 1);
  std::vector<DLTensor*> items;
  for (int64_t i = 0; i < cell->size; ++i) {
    items.push_back(TVMFFITensorGetDLTensorPtr(static_cast<const TVMFFIAny*>(cell->data)[i].v_obj));
  }
  return items;
}

void ExpectRight(const Loaded& library, const TestModel& model, float seed = 0) {
  Vec x;
  for (int i = 0; i < kSize; ++i) x.data[i] = seed + static_cast<float>(i % 50);
  TVMFFIAny result;
  ASSERT_EQ(library.Call("main", {x.any()}, &result), "");
  const std::vector<DLTensor*> items = Items(result);
  ASSERT_EQ(items.size(), 2);
  const auto* y = static_cast<const float*>(items[0]->data);
  EXPECT_EQ(std::vector<float>(y, y + kSize), model.Expected(x.data));
  const auto* again = static_cast<const float*>(items[1]->data);
  EXPECT_EQ(std::vector<float>(again, again + kSize), x.data);
  TVMFFIObjectDecRef(result.v_obj);
}

TEST(Linker, LibraryWithItsParametersRuns) {
  Request request;
  auto linked = request.Link("inside.so");
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(linked->params_path, "");
  Loaded library(request.link.output);
  ASSERT_TRUE(library.ok());
  ExpectRight(library, request.model);
  ExpectRight(library, request.model, 3);
}

TEST(Linker, ParametersBesideTheLibraryAndCopiedAway) {
  Request request;
  request.link.link_params = false;
  auto linked = request.Link("beside.so");
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(linked->params_path, request.link.output + ".safetensors");
  const std::string dir = TmpPath("elsewhere");
  ASSERT_EQ(mkdir(dir.c_str(), 0755), 0);
  ASSERT_EQ(rename(request.link.output.c_str(), (dir + "/m.so").c_str()), 0);
  {
    Loaded library(dir + "/m.so");
    Vec x;
    TVMFFIAny result;
    EXPECT_THAT(library.Call("main", {x.any()}, &result), HasSubstr("cannot open " + dir + "/m.so.safetensors"));
    // It may come later, or from where load is told.
    TVMFFIAny path = {};
    path.type_index = kTVMFFIRawStr;
    path.v_c_str = linked->params_path.c_str();
    EXPECT_EQ(library.Call("load", {path}, &result), "");
    ExpectRight(library, request.model);
  }
  ASSERT_EQ(rename(linked->params_path.c_str(), (dir + "/m.so.safetensors").c_str()), 0);
  Loaded library(dir + "/m.so");
  ASSERT_TRUE(library.ok());
  ExpectRight(library, request.model);
}

TEST(Linker, SameInputsGiveTheSameBytes) {
  for (bool link_params : {true, false}) {
    Request request;
    request.link.link_params = link_params;
    ASSERT_TRUE(request.Link("first.so").ok());
    Request again;
    again.link.link_params = link_params;
    ASSERT_TRUE(again.Link("second.so").ok());
    EXPECT_EQ(*ReadFile(request.link.output), *ReadFile(again.link.output));
  }
  EXPECT_EQ(*ReadFile(TmpPath("first.so.safetensors")), *ReadFile(TmpPath("second.so.safetensors")));
}

TEST(Linker, ExportsAndNeedsOnlyWhatItShould) {
  Request request;
  ASSERT_TRUE(request.Link("needs.so").ok());
  SubprocessOptions options;
  options.argv = {"/usr/bin/readelf", "-dW", "--dyn-syms", "-S", request.link.output};
  options.env = {"LC_ALL=C"};
  options.pipe_stdout = true;
  auto text = RunSubprocess(std::move(options), absl::Seconds(20));
  ASSERT_TRUE(text.ok());
  const std::string& out = text->stdout_bytes;
  EXPECT_THAT(out, HasSubstr("[$ORIGIN:$ORIGIN/lib]"));
  EXPECT_THAT(out, HasSubstr(".inlay.manifest"));
  EXPECT_THAT(out, HasSubstr(".inlay.params"));
  std::set<std::string> needed, exported;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("Shared library: [");
    if (at != std::string::npos) needed.insert(line.substr(at + 17, line.find(']') - at - 17));
    if (line.find(" GLOBAL DEFAULT ") != std::string::npos && line.find(" UND ") == std::string::npos) {
      exported.insert(line.substr(line.rfind(' ') + 1));
    }
  }
  EXPECT_EQ(exported, (std::set<std::string>{"__tvm_ffi_check_compatibility", "__tvm_ffi_get_metadata",
                                             "__tvm_ffi_load", "__tvm_ffi_main", "__tvm_ffi_main_into",
                                             "__tvm_ffi_profile", "__tvm_ffi_set_num_threads"}));
  for (const std::string& name : needed) {
    EXPECT_TRUE(name == "libtvm_ffi.so" || name == "libm.so.6" || name == "libc.so.6" || name == "ld-linux-x86-64.so.2")
        << name;
  }
}

// The manifest's "glibc" is a promise about symbols' versions.
TEST(Linker, NeedsNoNewerGlibcThanItSays) {
  Request request;
  ASSERT_TRUE(request.Link("glibc.so").ok());
  SubprocessOptions options;
  options.argv = {"/usr/bin/readelf", "-VW", request.link.output};
  options.env = {"LC_ALL=C"};
  options.pipe_stdout = true;
  auto text = RunSubprocess(std::move(options), absl::Seconds(20));
  ASSERT_TRUE(text.ok());
  int newest = 0;
  for (size_t at = 0; (at = text->stdout_bytes.find("Name: GLIBC_2.", at)) != std::string::npos; ++at) {
    newest = std::max(newest, std::atoi(text->stdout_bytes.c_str() + at + 14));
  }
  EXPECT_GT(newest, 0);
  EXPECT_LE(newest, 35);
}

TEST(Linker, AMissingLibraryIsSaidByWhateverNeedsIt) {
  Request request;
  proto::RequiredLibrary* required = request.model.libraries[0].mutable_manifest()->add_required_libraries();
  required->set_soname("libnot_on_this_machine.so.7");
  required->set_package("not-on-this-machine==7 (PyPI)");
  required->set_version("7.1");
  ASSERT_TRUE(request.Link("missing.so").ok());
  Loaded library(request.link.output);
  ASSERT_TRUE(library.ok()) << "it can be opened, and asked";
  TVMFFIAny result;
  ASSERT_EQ(library.Call("get_metadata", {}, &result), "");
  const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(result.v_obj);
  EXPECT_THAT(std::string(bytes->data, bytes->size), HasSubstr("libtvm_ffi.so libnot_on_this_machine.so.7=7.1\""));
  TVMFFIObjectDecRef(result.v_obj);
  for (const char* function : {"check_compatibility", "load", "main"}) {
    Vec x;
    const std::string error = library.Call(function, std::vector<TVMFFIAny>(function[0] == 'm', x.any()), &result);
    EXPECT_THAT(error, HasSubstr("RuntimeError: needs libnot_on_this_machine.so.7 (for test)")) << function;
    EXPECT_THAT(error, HasSubstr("not-on-this-machine==7 (PyPI)")) << function;
  }
}

// A component that calls a library: its functions come from the library, C++'s from the artifact's own libstdc++.
TEST(Linker, ComponentsCallLibrariesThatAreLoadedWithTheModel) {
  const std::string source = TmpPath("needy.cc"), library = TmpPath("libneeded.so.1");
  std::ofstream(source)
      << "#include <string>\n"
         "extern \"C\" int needed_twice(int);\n"
         "extern \"C\" int inlay_needy_probe(int x) { return needed_twice(std::to_string(x).size()); }\n";
  std::ofstream(TmpPath("needed.c")) << "int needed_twice(int x) { return 2 * x; }\n";
  const std::string gcc = "/usr/bin/gcc";
  ASSERT_EQ(RunTool({gcc, "-shared", "-fPIC", "-Wl,-soname,libneeded.so.1", "-o", library, TmpPath("needed.c")}), "");
  ASSERT_EQ(RunTool({gcc, "-fPIC", "-c", "-o", TmpPath("needy.o"), source}), "");
  ASSERT_EQ(RunTool({"/usr/bin/ar", "rcs", TmpPath("libneedy_runtime.a"), TmpPath("needy.o")}), "");
  auto imports = FindImports({{TmpPath("libneedy_runtime.a")}, Toolchain().static_archives, {library}});
  ASSERT_TRUE(imports.ok()) << imports.status();
  EXPECT_EQ(*imports, (std::vector<std::vector<std::string>>{{"needed_twice"}}));

  Request request;
  proto::StaticLibraryManifest* manifest = request.model.libraries[0].mutable_manifest();
  manifest->add_runtime_components("needy");
  manifest->add_required_libraries()->set_soname("libneeded.so.1");
  LinkToolchain toolchain = Toolchain();
  toolchain.runtime_dirs.push_back(TmpPath(""));
  toolchain.library_dirs.push_back(TmpPath(""));
  request.link.output = TmpPath("calls.so");
  auto linked = LinkLibrary(toolchain, request.link);
  ASSERT_TRUE(linked.ok()) << linked.status();
  Loaded loaded(request.link.output);  // libneeded.so.1 lies beside it
  ASSERT_TRUE(loaded.ok());
  ExpectRight(loaded, request.model);
}

TEST(Linker, MetadataNeedsNothingLoaded) {
  Request request;
  request.link.link_params = false;
  ASSERT_TRUE(request.Link("meta.so").ok());
  Loaded library(request.link.output);
  TVMFFIAny result;
  ASSERT_EQ(library.Call("get_metadata", {}, &result), "");
  ASSERT_EQ(result.type_index, kTVMFFIStr);
  const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(result.v_obj);
  const std::string text(bytes->data, bytes->size);
  EXPECT_THAT(text, HasSubstr("\"backends\":[{\"functions\":2,\"name\":\"test\",\"version\":\"1\"}]"));
  EXPECT_THAT(text, HasSubstr("layer.weight"));
  TVMFFIObjectDecRef(result.v_obj);
}

TEST(Linker, WrongArgumentsAreNamed) {
  Request request(/*with_fail=*/true);
  ASSERT_TRUE(request.Link("args.so").ok());
  Loaded library(request.link.output);
  TVMFFIAny result, number = {};
  number.type_index = kTVMFFIInt;
  EXPECT_EQ(library.Call("main", {}, &result), "ValueError: expected 1 inputs, got 0");
  EXPECT_EQ(library.Call("main", {number}, &result), "ValueError: input 0 'x': expected a tensor f32[1000]");
  Vec x;
  x.shape[0] = 999;
  EXPECT_EQ(library.Call("main", {x.any()}, &result), "ValueError: input 0 'x': expected f32[1000], got f32[999]");
  x.shape[0] = kSize;
  x.tensor.dtype = {kDLInt, 32, 1};
  EXPECT_EQ(library.Call("main", {x.any()}, &result), "ValueError: input 0 'x': expected f32[1000], got i32[1000]");
  x.tensor.dtype = {kDLFloat, 32, 1};
  x.tensor.device = {kDLCUDA, 0};
  EXPECT_THAT(library.Call("main", {x.any()}, &result), HasSubstr("CPU memory"));
  x.tensor.device = {kDLCPU, 0};
  x.data[1] = 1000;
  EXPECT_EQ(library.Call("main", {x.any()}, &result),
            "RuntimeError: partition 'checker' (t_fail_run): the second element is too big (code 3)");
  x.data[1] = 0;
  EXPECT_EQ(library.Call("main", {x.any()}, &result), "");
  TVMFFIObjectDecRef(result.v_obj);
}

TEST(Linker, StridesAndOffsets) {
  Request request;
  ASSERT_TRUE(request.Link("strides.so").ok());
  Loaded library(request.link.output);
  std::vector<float> wide(2 * kSize + 1);
  for (int i = 0; i < kSize; ++i) wide[1 + 2 * i] = static_cast<float>(i);
  Vec x, dense;
  for (int i = 0; i < kSize; ++i) dense.data[i] = static_cast<float>(i);
  x.strides[0] = 2;
  x.tensor.data = wide.data();
  x.tensor.byte_offset = 4;
  x.tensor.strides = x.strides;
  TVMFFIAny result;
  ASSERT_EQ(library.Call("main", {x.any()}, &result), "");
  const auto* y = static_cast<const float*>(Items(result)[0]->data);
  EXPECT_EQ(std::vector<float>(y, y + kSize), request.model.Expected(dense.data));
  TVMFFIObjectDecRef(result.v_obj);
  // Not aligned to its element.
  std::vector<char> bytes(4 * kSize + 1);
  std::memcpy(bytes.data() + 1, dense.data.data(), 4 * kSize);
  x.tensor.data = bytes.data();
  x.tensor.byte_offset = 1;
  x.tensor.strides = nullptr;
  ASSERT_EQ(library.Call("main", {x.any()}, &result), "");
  y = static_cast<const float*>(Items(result)[0]->data);
  EXPECT_EQ(std::vector<float>(y, y + kSize), request.model.Expected(dense.data));
  TVMFFIObjectDecRef(result.v_obj);
}

TEST(Linker, MainIntoWritesTheCallersTensors) {
  Request request;
  ASSERT_TRUE(request.Link("into.so").ok());
  Loaded library(request.link.output);
  Vec x, y, again;
  x.data.assign(kSize, 2);
  TVMFFIAny result;
  ASSERT_EQ(library.Call("main_into", {x.any(), y.any(), again.any()}, &result), "");
  EXPECT_EQ(y.data, request.model.Expected(x.data));
  EXPECT_EQ(again.data, x.data);
  EXPECT_EQ(library.Call("main_into", {x.any(), x.any(), again.any()}, &result),
            "ValueError: output 0 'y' overlaps input 0 'x'");
  EXPECT_EQ(library.Call("main_into", {x.any(), y.any(), y.any()}, &result),
            "ValueError: output 1 'x_again' overlaps output 0");
  y.strides[0] = 2;
  y.tensor.strides = y.strides;
  EXPECT_THAT(library.Call("main_into", {x.any(), y.any(), again.any()}, &result), HasSubstr("must be dense"));
}

TEST(Linker, ThreadsAtOnceAndChangingTheirNumber) {
  Request request;
  ASSERT_TRUE(request.Link("threads.so").ok());
  Loaded library(request.link.output);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (t == 0 && i % 10 == 0) {
          TVMFFIAny n = {}, result;
          n.type_index = kTVMFFIInt;
          n.v_int64 = 1 + i / 10 % 2;
          EXPECT_EQ(library.Call("set_num_threads", {n}, &result), "");
        }
        ExpectRight(library, request.model, static_cast<float>(t));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  TVMFFIAny n = {}, result;
  n.type_index = kTVMFFIInt;
  n.v_int64 = -1;
  EXPECT_THAT(library.Call("set_num_threads", {n}, &result), HasSubstr("num_threads is -1"));
}

TEST(Linker, AnOutputOutlivesTheLibrary) {
  Request request;
  ASSERT_TRUE(request.Link("outlives.so").ok());
  TVMFFIAny result;
  Vec x;
  {
    Loaded library(request.link.output);
    ASSERT_EQ(library.Call("main", {x.any()}, &result), "");
  }
  const auto* y = static_cast<const float*>(Items(result)[0]->data);
  EXPECT_EQ(std::vector<float>(y, y + kSize), request.model.Expected(x.data));
  TVMFFIObjectDecRef(result.v_obj);
}

TEST(Linker, OtherCpuIsAClearError) {
  Request request;
  request.model.libraries[1].mutable_manifest()->set_target_features("+sse2,+xop,+amx-fp16");
  ASSERT_TRUE(request.Link("cpu.so").ok());
  Loaded library(request.link.output);
  Vec x;
  TVMFFIAny result;
  EXPECT_THAT(library.Call("main", {x.any()}, &result), HasSubstr("RuntimeError: needs "));
  EXPECT_THAT(library.Call("load", {}, &result), HasSubstr("this CPU lacks"));
}

TEST(Linker, RefusesWhatDoesNotFit) {
  {
    Request request;
    request.link.libraries.pop_back();
    EXPECT_THAT(std::string(request.Link("bad.so").status().message()),
                HasSubstr("function t_scale is implemented by no StaticLibrary"));
  }
  {
    Request request;
    request.link.libraries.push_back(request.link.libraries[0]);
    EXPECT_THAT(std::string(request.Link("bad.so").status().message()), HasSubstr("defined twice"));
  }
  {
    Request request;
    request.model.w[5] += 1;
    const absl::Status s = request.Link("bad.so").status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()), HasSubstr("'layer.weight' (f32[1000]): its bytes are not those"));
  }
  {
    Request request;
    request.model.w.resize(999);
    EXPECT_THAT(std::string(request.Link("bad.so").status().message()), HasSubstr("its blob has 3996 bytes"));
  }
  {
    Request request;
    request.link.params.clear();
    EXPECT_THAT(std::string(request.Link("bad.so").status().message()), HasSubstr("1 params, given were 0"));
  }
  {
    Request request;
    request.model.libraries[0].mutable_manifest()->add_runtime_components("nowhere");
    EXPECT_EQ(request.Link("bad.so").status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(request.Link("bad.so").status().message()), HasSubstr("libnowhere_runtime.a"));
  }
  {
    Request request;
    CancelToken token;
    token.Cancel();
    request.link.cancel = &token;
    EXPECT_EQ(request.Link("bad.so").status().code(), absl::StatusCode::kCancelled);
  }
  struct stat info;
  EXPECT_NE(stat(TmpPath("bad.so").c_str(), &info), 0);  // nothing half-made lies there
}

TEST(Linker, ManifestIsReadWithoutLoading) {
  Request request;
  ASSERT_TRUE(request.Link("section.so").ok());
  const std::string json = TmpPath("manifest.json");
  SubprocessOptions options;
  options.argv = {"/usr/bin/objcopy", "-O", "binary", "--only-section=.inlay.manifest", request.link.output, json};
  options.env = {"LC_ALL=C"};
  ASSERT_TRUE(RunSubprocess(std::move(options), absl::Seconds(20)).ok());
  auto text = ReadFile(json);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->find("{\"backends\""), 0);
  EXPECT_EQ(text->back(), '}');
}

TEST(Linker, ModelWithoutParameters) {
  ModuleBuilder b;
  b.Declare(AddSignature());
  ir::VarPtr x = b.Input("x", Vector());
  b.Return({b.Call("t_add", {x, x})}, {});
  const proto::StaticLibrary library = MakeLibrary(AddSource(), {AddSignature()});
  auto built = BuildPlan(b.module(), {library.manifest()});
  ASSERT_TRUE(built.ok());
  LinkRequest link;
  link.libraries = {&library};
  link.plan = &built->plan;
  for (bool link_params : {true, false}) {
    link.link_params = link_params;
    link.output = TmpPath("noparams.so");
    auto linked = LinkLibrary(Toolchain(), link);
    ASSERT_TRUE(linked.ok()) << linked.status();
    EXPECT_EQ(linked->params_path, "");
    Loaded loaded(link.output);
    Vec v;
    v.data.assign(kSize, 4);
    TVMFFIAny result;
    ASSERT_EQ(loaded.Call("main", {v.any()}, &result), "");
    ASSERT_EQ(result.type_index, kTVMFFITensor);  // one output: the tensor itself
    EXPECT_EQ(static_cast<float*>(TVMFFITensorGetDLTensorPtr(result.v_obj)->data)[7], 8);
    TVMFFIObjectDecRef(result.v_obj);
  }
}

TEST(Linker, LoadAndUnloadLeaksNothing) {
  Request request;
  ASSERT_TRUE(request.Link("leak.so").ok());
  auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    int64_t size = 0, pages = 0;
    statm >> size >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  auto round = [&] {
    Loaded library(request.link.output);
    ExpectRight(library, request.model);
  };
  for (int i = 0; i < 20; ++i) round();
  const int64_t before = resident();
  for (int i = 0; i < 200; ++i) round();
  EXPECT_LT(resident() - before, 4 << 20);
}

TEST(FindLinkToolchain, NamesWhatIsMissing) {
  auto none = FindLinkToolchain({"/nonexistent"}, {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("libinlay_artifact_runtime.a in /nonexistent"));
  auto no_ffi = FindLinkToolchain({Absolute("core/runtime")}, {"/nonexistent"});
  EXPECT_THAT(std::string(no_ffi.status().message()), HasSubstr("libtvm_ffi.so"));
}

}  // namespace
}  // namespace inlay::artifact
