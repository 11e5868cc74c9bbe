// What a backend should be (core/backend/README.md has the list and the tests of whole artifacts), as far as it shows
// in its StaticLibraries.
#include <dlfcn.h>
#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/artifact/static_library.h"
#include "core/backend/testing/conformance/suite.h"
#include "core/backend/testing/loaded_library.h"
#include "core/backend/testing/partitions.h"

// Every allocation of the process goes through these, those of shared libraries too. While one is counted, who asked
// for it is looked up: a backend's library may have ways of its own, what is ours may not.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace inlay::backend::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kFrames = 24;

struct Watch {
  std::vector<std::string> libraries;  // whose allocations are theirs
  std::string functions;               // likewise, of a library that is linked statically: how their names begin
  std::atomic<int64_t> ours{0}, theirs{0};
  void* first[kFrames];  // who made the first of ours
  int first_frames = 0;
};
std::atomic<Watch*> watching{nullptr};
thread_local bool looking = false;

bool IsTheirs(const Watch& watch, void* const* frames, int count) {
  for (int i = 0; i < count; ++i) {
    Dl_info info = {};
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (!watch.functions.empty() && info.dli_sname != nullptr && absl::StartsWith(info.dli_sname, watch.functions)) {
      return true;
    }
    for (const std::string& library : watch.libraries) {
      if (std::strstr(info.dli_fname, library.c_str()) != nullptr) return true;
    }
  }
  return false;
}

void Count() {
  Watch* watch = watching.load(std::memory_order_acquire);
  if (watch == nullptr || looking) return;
  looking = true;
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  if (IsTheirs(*watch, frames, count)) {
    ++watch->theirs;
  } else if (watch->ours++ == 0) {
    std::copy(frames, frames + count, watch->first);
    watch->first_frames = count;
  }
  looking = false;
}

std::string FirstOf(const Watch& watch) {
  std::string text;
  char** names = backtrace_symbols(watch.first, watch.first_frames);
  for (int i = 0; i < watch.first_frames; ++i) absl::StrAppend(&text, "\n  ", names[i]);
  std::free(names);
  return text;
}

}  // namespace
}  // namespace inlay::backend::testing

extern "C" {
void* malloc(size_t size) {
  inlay::backend::testing::Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  inlay::backend::testing::Count();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  inlay::backend::testing::Count();
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  inlay::backend::testing::Count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  *result = memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}

namespace inlay::backend::testing {
namespace {

class Desiderata : public ::testing::TestWithParam<std::string> {
 protected:
  const Backend& backend() const { return GetBackend(GetParam()); }

  // Of each case the largest that the backend claims, the whole where it merges.
  std::vector<std::pair<Case, TestPartition>> Claimed() const {
    std::vector<std::pair<Case, TestPartition>> claimed;
    std::vector<std::string> refusals;
    for (const Case& c : AllCases()) {
      std::vector<TestPartition> partitions = PartitionsOf(backend(), c.function, TestTarget(), &refusals);
      if (!partitions.empty()) claimed.emplace_back(c, std::move(partitions.back()));
    }
    return claimed;
  }
};

absl::StatusOr<proto::StaticLibrary> CompileWith(const std::string& backend, const ir::Function& partition,
                                                 const target::Target& codegen_target) {
  ir::IRModule module;
  module.functions[kSymbol] = partition;
  const char* tmp = std::getenv("TEST_TMPDIR");
  return GetCodegen(backend).Codegen({module, TestTarget(), codegen_target, tmp == nullptr ? "/tmp" : tmp});
}

// No build step after the codegen hook: the objects alone are linked, by a program that is told nothing and has no PATH
// to find a compiler on, and run.
TEST_P(Desiderata, SelfContained) {
  int linked = 0;
  for (const auto& [c, partition] : Claimed()) {
    SCOPED_TRACE(c.name);
    auto library = CompileOnce(GetParam(), partition.function);
    ASSERT_TRUE(library.ok()) << library.status();
    ASSERT_TRUE(artifact::CheckStaticLibrary(*library).ok()) << artifact::CheckStaticLibrary(*library);
    auto loaded = LoadedLibrary::Load(*library);  // env -i ld.lld -shared OBJECTS
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ++linked;
  }
  EXPECT_GT(linked, 0) << "no case is claimed";
}

// A value of the attribute that is not its default; "" where nothing but its author knows one.
std::string AnotherValue(const target::AttrSpec& spec) {
  using Type = target::AttrSpec::Type;
  if (spec.type == Type::kBool) return spec.default_value == "1" ? "0" : "1";
  if (spec.type == Type::kInt) {
    const int64_t now = std::atoll(spec.default_value.c_str());  // NOLINT
    const int64_t twice = now == 0 ? 64 : 2 * now;
    return absl::StrCat(spec.max == 0 || twice <= spec.max ? twice : spec.min);
  }
  for (const std::string& choice : spec.choices) {
    if (choice != spec.default_value) return choice;
  }
  return "";
}

// Codegen targets with one attribute set. A text's comes from the test's BUILD file: INLAY_CONFORMANCE_ATTR,
// "cflags=-O1".
std::vector<target::Target> OtherTargets(const Backend& backend) {
  std::vector<target::Target> targets;
  for (const target::AttrSpec& spec : backend.attrs()) {
    std::string value = AnotherValue(spec);
    const char* given = std::getenv("INLAY_CONFORMANCE_ATTR");
    if (value.empty() && given != nullptr && absl::StartsWith(given, spec.name + "=")) {
      value = given + spec.name.size() + 1;
    }
    if (value.empty()) continue;
    target::Target target;
    target.kind = backend.name();
    target.attrs[spec.name] = value;
    targets.push_back(std::move(target));
  }
  return targets;
}

// Its codegen target's attributes configure it: each is described, checked, and changes code.
TEST_P(Desiderata, Configurable) {
  EXPECT_FALSE(backend().attrs().empty()) << "it has no attribute";
  for (const target::AttrSpec& spec : backend().attrs()) EXPECT_NE(spec.help, "") << spec.name;
  const std::vector<target::Target> others = OtherTargets(backend());
  EXPECT_FALSE(others.empty());
  for (const target::Target& other : others) {
    SCOPED_TRACE(other.ToString());
    const absl::Status fits = backend().CheckTarget(TestTarget(), other);
    EXPECT_TRUE(fits.ok()) << fits;
    bool changes = false;
    for (const auto& [c, partition] : Claimed()) {
      SCOPED_TRACE(c.name);
      auto by_default = CompileOnce(GetParam(), partition.function);
      auto with = CompileWith(GetParam(), partition.function, other);
      ASSERT_TRUE(by_default.ok() && with.ok()) << with.status();
      changes = by_default->SerializeAsString() != with->SerializeAsString();
      if (changes) break;
    }
    EXPECT_TRUE(changes) << "it changes no code";
  }
}

TEST_P(Desiderata, UnknownAttributesAreRefusedWithThoseThereAre) {
  target::Target wrong;
  wrong.kind = GetParam();
  wrong.attrs["no-such-attribute"] = "1";
  const absl::Status status = backend().CheckTarget(TestTarget(), wrong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("codegen target " + GetParam()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no attribute 'no-such-attribute'; it has "));
  for (const target::AttrSpec& spec : backend().attrs()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(spec.name));
    if (spec.type == target::AttrSpec::Type::kString) continue;
    target::Target bad;
    bad.kind = GetParam();
    bad.attrs[spec.name] = "no such value";
    EXPECT_EQ(backend().CheckTarget(TestTarget(), bad).code(), absl::StatusCode::kInvalidArgument) << spec.name;
  }
}

// What partitions have in common is not in their objects: either it lies in the archive of a runtime component, which
// is linked once, or there is nothing. So no object defines anything but its own functions.
TEST_P(Desiderata, Sharing) {
  std::set<std::string> components;
  int index = 0;
  for (const auto& [c, partition] : Claimed()) {
    if (index++ % 6 != 0) continue;  // some are enough, and each is compiled once more
    SCOPED_TRACE(c.name);
    auto library = CompileOnce(GetParam(), partition.function);
    ASSERT_TRUE(library.ok());
    const auto& names = library->manifest().runtime_components();
    components.insert(names.begin(), names.end());
    // Two partitions, each in a StaticLibrary of its own: their objects meet in one artifact.
    auto twin = Compile(GetParam(), partition.function, "inlay_conformance_twin");
    ASSERT_TRUE(twin.ok());
    const proto::StaticLibrary* both[] = {&*library, &*twin};
    const absl::Status meet = artifact::CheckStaticLibraries(both);
    EXPECT_TRUE(meet.ok()) << meet;
    proto::StaticLibrary together = *library;
    for (const auto& object : twin->objects()) *together.add_objects() = object;
    auto loaded = LoadedLibrary::Load(together);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
  }
  for (const std::string& component : components) EXPECT_TRUE(artifact::IsPlainName(component)) << component;
}

// Once initialised, a call runs and does nothing else: no allocation of ours, and none that the executor would serve
// (which is not even offered). A library's own must be gone when it returns (PartitionConformance.KeepsNoMemory).
TEST_P(Desiderata, NoRunOverhead) {
  void* warm[2];
  backtrace(warm, 2);  // loads what it needs
  for (const auto& [c, partition] : Claimed()) {
    SCOPED_TRACE(c.name);
    auto library = CompileOnce(GetParam(), partition.function);
    ASSERT_TRUE(library.ok());
    auto loaded = LoadedLibrary::Load(*library);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto inputs = MakeInputs(partition.function, c, 1);
    auto function = LoadedFunction::Init(**loaded, library->manifest().functions(0), inputs, 1);
    ASSERT_TRUE(function.ok()) << function.status();
    auto call = (*function)->Prepare(inputs);
    ASSERT_TRUE(call->Run().ok());  // the first
    Watch watch;
    for (const auto& required : library->manifest().required_libraries()) {
      watch.libraries.push_back(required.soname().substr(0, required.soname().find(".so")));
    }
    const char* functions = std::getenv("INLAY_CONFORMANCE_LIBRARY");  // of the test's BUILD file
    if (functions != nullptr) watch.functions = functions;
    bool ok = true;
    watching.store(&watch, std::memory_order_release);
    for (int i = 0; i < 3; ++i) ok &= call->Run().ok();
    watching.store(nullptr, std::memory_order_release);
    EXPECT_TRUE(ok);
    EXPECT_EQ(watch.ours, 0) << "allocations in three calls; the first by" << FirstOf(watch);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Desiderata, ::testing::ValuesIn(BackendNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace inlay::backend::testing
