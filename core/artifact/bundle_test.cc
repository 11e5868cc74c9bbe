// Of whole bundles: tests/e2e/test_bundle.py.
#include "core/artifact/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/artifact/licenses.h"
#include "core/base/file_system.h"
#include "core/base/subprocess.h"

namespace inlay::artifact {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Folder(const std::string& name) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  EXPECT_TRUE(FileSystem::Default()->CreateDirectories(folder).ok());
  return folder;
}

// A shared library that needs those of `needed`, in the same folder.
void MakeLibrary(const std::string& folder, const std::string& soname, const std::vector<std::string>& needed) {
  const std::string source = folder + "/" + soname + ".c";
  std::ofstream(source) << "int x;\n";
  SubprocessOptions options;
  options.argv = {"/usr/bin/gcc",        "-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-soname," + soname, "-o",
                  folder + "/" + soname, source};
  for (const std::string& other : needed) options.argv.push_back(folder + "/" + other);
  options.env = {"PATH=/usr/bin:/bin"};
  ASSERT_TRUE(RunSubprocess(std::move(options), absl::Seconds(60)).ok());
}

// libtvm_ffi.so alone, and libtop.so.1 -> libmiddle.so.2 -> libbottom.so.3.
struct World {
  explicit World(const std::string& name) : folder(Folder(name)) {
    MakeLibrary(folder, "libtvm_ffi.so", {});
    MakeLibrary(folder, "libbottom.so.3", {});
    MakeLibrary(folder, "libmiddle.so.2", {"libbottom.so.3"});
    MakeLibrary(folder, "libtop.so.1", {"libmiddle.so.2"});
    toolchain.library_dirs = {folder};
    request.run_program = folder + "/libtvm_ffi.so";  // any ELF file
    request.scratch_dir = Folder(name + "_scratch");
  }
  void Need(const std::string& soname) {
    request.required_libraries.emplace_back();
    request.required_libraries.back().set_soname(soname);
  }
  std::string folder;
  LinkToolchain toolchain;
  BundleRequest request;
};

TEST(Bundle, HasWhatIsNeededByWhatIsNeeded) {
  World world("whole");
  world.Need("libtop.so.1");
  auto files = AssembleBundle(world.toolchain, world.request);
  ASSERT_TRUE(files.ok()) << files.status();
  std::vector<std::string> libraries;
  for (const BundleFile& file : *files) {
    if (file.name.substr(0, 4) == "lib/") libraries.push_back(file.name);
  }
  EXPECT_THAT(libraries,
              ElementsAre("lib/libbottom.so.3", "lib/libmiddle.so.2", "lib/libtop.so.1", "lib/libtvm_ffi.so"));
}

TEST(Bundle, NamesWhatIsMissingAndWhoNeedsIt) {
  World world("missing");
  ASSERT_TRUE(FileSystem::Default()->Remove(world.folder + "/libbottom.so.3").ok());
  world.Need("libtop.so.1");
  const absl::Status status = AssembleBundle(world.toolchain, world.request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a bundle needs libbottom.so.3 (for libmiddle.so.2)"));
}

TEST(Bundle, RefusesNamesThatAreNone) {
  World world("names");
  world.Need("../libtop.so.1");
  EXPECT_EQ(AssembleBundle(world.toolchain, world.request).status().code(), absl::StatusCode::kInvalidArgument);
  world.request.run_program.clear();
  EXPECT_EQ(AssembleBundle(world.toolchain, world.request).status().code(), absl::StatusCode::kNotFound);
}

TEST(Bundle, NeededSonamesOfWhatIsNoLibrary) {
  const std::string path = Folder("none") + "/text";
  std::ofstream(path) << "no ELF";
  EXPECT_FALSE(NeededSonames(path).ok());
  EXPECT_FALSE(NeededSonames(path + "2").ok());
  auto needed = NeededSonames("/proc/self/exe");
  ASSERT_TRUE(needed.ok());
  EXPECT_THAT(*needed, Contains("libc.so.6"));
  EXPECT_TRUE(IsGlibc("libc.so.6"));
  EXPECT_FALSE(IsGlibc("libgomp.so.1"));
}

TEST(Licenses, OfPackagesAndTheirFiles) {
  auto package = PackageLicense("zlib1g-dev");
  ASSERT_TRUE(package.ok()) << package.status();
  EXPECT_THAT(*package, HasSubstr("Jean-loup Gailly"));
  auto file = FileLicense("/usr/lib/x86_64-linux-gnu/libgomp.so.1");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file, HasSubstr("GCC"));
  EXPECT_TRUE(absl::IsNotFound(FileLicense(Folder("nobodys")).status()));
}

}  // namespace
}  // namespace inlay::artifact
