// Compiles a model on an inlay server, writes it as a library, loads that, and runs it.
//
//   g++ -std=c++17 run_model.cc -o run_model $(pkg-config --cflags --libs inlay)
//   run_model MODEL.inlay OUT.so INPUT.f32... > OUTPUT.f32
//
// MODEL.inlay is what module.save("MODEL.inlay") writes in Python; inputs and the output are raw f32 values. The server
// is $INLAY_SERVER, or the daemon that `inlay` has started for you.
#include <inlay/inlay.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

absl::Status ReadFloats(const std::string& path, const inlay::Tensor& tensor) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() != static_cast<size_t>(tensor.numel()) * sizeof(float)) {
    return absl::InvalidArgumentError(path + " has not as many values as the model's input");
  }
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status Main(const std::string& model, const std::string& library, const std::vector<std::string>& files) {
  const absl::StatusOr<inlay::IRModule> module = inlay::LoadModule(model);
  if (!module.ok()) return module.status();
  inlay::BuildOptions options;
  options.timeout = absl::Minutes(5);
  options.progress = [](const inlay::Progress& p) {
    std::fprintf(stderr, "%s %d/%d\n", p.phase.c_str(), static_cast<int>(p.done), static_cast<int>(p.total));
  };
  const absl::StatusOr<inlay::Executable> executable = inlay::Build(*module, "llvm -mcpu=native", options);
  if (!executable.ok()) return executable.status();
  for (const auto& part : executable->report().partitions) {
    std::fprintf(stderr, "%s by %s (%s)\n", part.name.c_str(), part.backend.c_str(), part.cache_hit ? "hit" : "miss");
  }
  if (const absl::Status status = executable->ExportLibrary(library); !status.ok()) return status;

  const absl::StatusOr<inlay::Module> loaded = inlay::LoadLibrary(library);
  if (!loaded.ok()) return loaded.status();
  const auto& specs = executable->signature().inputs;
  if (files.size() != specs.size()) return absl::InvalidArgumentError("as many files as the model has inputs, please");
  std::vector<inlay::Tensor> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    absl::StatusOr<inlay::Tensor> tensor = inlay::EmptyTensor(specs[i].dtype, specs[i].shape);
    if (!tensor.ok()) return tensor.status();
    if (const absl::Status status = ReadFloats(files[i], *tensor); !status.ok()) return status;
    inputs.push_back(*std::move(tensor));
  }
  const absl::StatusOr<std::vector<inlay::Tensor>> outputs = loaded->Run(inputs);
  if (!outputs.ok()) return outputs.status();
  for (const float value : inlay::Values<float>(outputs->front())) std::fwrite(&value, sizeof(value), 1, stdout);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: run_model MODEL.inlay OUT.so INPUT.f32... > OUTPUT.f32\n");
    return 2;
  }
  const absl::Status status = Main(argv[1], argv[2], {argv + 3, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "run_model: %s\n", std::string(status.message()).c_str());
  return 1;
}
