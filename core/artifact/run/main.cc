// `run`: the program of a bundle. Runs the model beside it on arrays from NumPy's files; needs nothing but glibc and
// the bundle.
#include <getopt.h>
#include <limits.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "core/artifact/run/model.h"
#include "core/artifact/run/npy.h"

namespace inlay::run {
namespace {

using runtime::DType;
using runtime::InvalidArgument;
using runtime::Status;
using runtime::StatusOr;

constexpr char kUsage[] =
    "usage: run --input FILE... [--output Y.npz] [--threads N] [--repeat N]\n"
    "       run --random SEED [...]     seeded inputs instead of files\n"
    "       run --info                  inputs, outputs, and whether this machine can run the model\n"
    "\n"
    "FILE is X.npz (arrays by the inputs' names), NAME=X.npy, or X.npy (inputs in order; --input may be repeated).\n"
    "--repeat times so many runs after one that is not timed. --threads 0: what the model was compiled for.\n"
    "Exit codes: 0 done; 1 the model, the inputs or this machine is at fault; 2 wrong usage.\n";
constexpr int kFailed = 1, kWrongUsage = 2;

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  int threads = 0, repeat = 1;
  bool info = false, random = false;
  unsigned seed = 0;
};

// False: not a number from `least` to a million.
bool ParseNumber(const char* text, int least, int* number) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);  // NOLINT
  if (end == text || *end != '\0' || value < least || value > 1000000) return false;
  *number = static_cast<int>(value);
  return true;
}

// 0: go on; else an exit code, with what is wrong on stderr.
int ParseOptions(int argc, char** argv, Options* options) {
  static const option kLong[] = {
      {"input", required_argument, nullptr, 'i'},   {"output", required_argument, nullptr, 'o'},
      {"threads", required_argument, nullptr, 't'}, {"repeat", required_argument, nullptr, 'r'},
      {"random", required_argument, nullptr, 's'},  {"info", no_argument, nullptr, 'f'},
      {"help", no_argument, nullptr, 'h'},          {}};
  bool good = true;
  int seed = 0;
  for (int c; good && (c = getopt_long(argc, argv, "i:o:h", kLong, nullptr)) != -1;) {
    switch (c) {
      case 'i':
        options->inputs.emplace_back(optarg);
        break;
      case 'o':
        options->output = optarg;
        break;
      case 't':
        good = ParseNumber(optarg, 0, &options->threads);
        break;
      case 'r':
        good = ParseNumber(optarg, 1, &options->repeat);
        break;
      case 's':
        options->random = good = ParseNumber(optarg, 0, &seed);
        options->seed = static_cast<unsigned>(seed);
        break;
      case 'f':
        options->info = true;
        break;
      case 'h':
        std::fputs(kUsage, stdout);
        std::exit(0);
      default:
        good = false;
    }
    if (!good && c != '?') std::fprintf(stderr, "run: '%s' is not a number that this option takes\n", optarg);
  }
  if (good && optind < argc) std::fprintf(stderr, "run: '%s' is no option\n", argv[optind]);
  if (good && optind == argc && !options->info && options->inputs.empty() && !options->random) {
    std::fputs("run: no --input\n", stderr);
    good = false;
  }
  if (good && optind == argc) return 0;
  std::fputs(kUsage, stderr);
  return kWrongUsage;
}

std::string OwnFolder() {
  char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) {  // no /proc here
    const char* given = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    if (given == nullptr || realpath(given, path) == nullptr) return ".";
    length = static_cast<ssize_t>(std::string(path).size());
  }
  const std::string file(path, length);
  return file.substr(0, file.rfind('/'));
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// What the files have, by the inputs' names.
StatusOr<NamedArrays> ReadFiles(const std::vector<std::string>& files, const std::vector<Spec>& inputs) {
  NamedArrays found;
  size_t next = 0;
  for (const std::string& file : files) {
    if (EndsWith(file, ".npz")) {
      StatusOr<NamedArrays> arrays = ReadNpz(file);
      if (!arrays.ok()) return arrays.status();
      for (auto& array : *arrays) found.push_back(std::move(array));
      continue;
    }
    // Names of tensors may hold anything; those of files end in .npy and begin behind the last '='.
    const size_t equals = access(file.c_str(), F_OK) == 0 ? std::string::npos : file.rfind('=');
    std::string name = equals == std::string::npos ? "" : file.substr(0, equals);
    if (name.empty()) {
      if (next >= inputs.size()) return InvalidArgument(file + ": the model has no more inputs");
      name = inputs[next++].name;
    }
    StatusOr<Array> array = ReadNpy(equals == std::string::npos ? file : file.substr(equals + 1));
    if (!array.ok()) return array.status();
    found.emplace_back(std::move(name), std::move(*array));
  }
  return found;
}

// In the order of the model's inputs. What is open of their shapes is checked with the call's types.
StatusOr<std::vector<Array>> ReadInputs(const std::vector<std::string>& files, const Model& model) {
  const std::vector<Spec>& inputs = model.inputs();
  StatusOr<NamedArrays> found = ReadFiles(files, inputs);
  if (!found.ok()) return found.status();
  std::vector<Array> arrays;
  for (const Spec& spec : inputs) {
    auto array = std::find_if(found->begin(), found->end(), [&](const auto& a) { return a.first == spec.name; });
    if (array == found->end()) {
      return InvalidArgument("no --input has '" + spec.name + "', " + model.shapes().ToString(spec.type));
    }
    if (model.shapes().empty() && array->second.type != spec.type) {
      return InvalidArgument("input '" + spec.name + "': expected " + spec.type.ToString() + ", got " +
                             array->second.type.ToString());
    }
    arrays.push_back(std::move(array->second));
    found->erase(array);
  }
  if (!found->empty()) return InvalidArgument("the model has no input '" + found->front().first + "'");
  return arrays;
}

// Floats from 0 to 1, integers 0 and 1.
StatusOr<std::vector<Array>> RandomInputs(unsigned seed, const Model& model) {
  std::mt19937 random(seed);
  std::vector<Array> arrays;
  for (const Spec& spec : model.inputs()) {
    if (spec.type.is_open()) {
      return InvalidArgument("input '" + spec.name + "' is " + model.shapes().ToString(spec.type) +
                             ", of no one size: give the inputs with --input");
    }
    Array array{spec.type, false, std::string(spec.type.NumBytes(), '\0')};
    const int64_t element = runtime::ByteSize(spec.type.dtype);
    for (int64_t i = 0; i < spec.type.NumElements(); ++i) {
      char* to = array.data.data() + i * element;
      const unsigned bits = random();
      const float f = static_cast<float>(bits) / 4294967296.0f;
      const double d = f;
      if (spec.type.dtype == DType::kF32) {
        std::copy_n(reinterpret_cast<const char*>(&f), sizeof(f), to);
      } else if (spec.type.dtype == DType::kF64) {
        std::copy_n(reinterpret_cast<const char*>(&d), sizeof(d), to);
      } else if (spec.type.dtype == DType::kF16 || spec.type.dtype == DType::kBF16) {
        to[1] = (bits & 1) != 0 ? 0x38 : 0;  // 0.5 (bf16: a small number), or 0
      } else {
        to[0] = static_cast<char>(bits & 1);
      }
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

void PrintInfo(const Model& model) {
  for (const Spec& s : model.inputs()) {
    std::printf("input %s: %s\n", s.name.c_str(), model.shapes().ToString(s.type).c_str());
  }
  for (const Spec& s : model.outputs()) {
    std::printf("output %s: %s\n", s.name.c_str(), model.shapes().ToString(s.type).c_str());
  }
  std::printf("backends: %s\ncompatibility: %s\n", model.backends().c_str(), model.compatibility().c_str());
}

// Runs, timed; `outputs` are of the last.
Status Execute(const Model& model, const Options& options, const std::vector<Array>& inputs,
               std::vector<Array>* outputs) {
  if (options.threads > 0) {
    if (Status s = model.SetNumThreads(options.threads); !s.ok()) return s;
  }
  if (Status s = model.Load(); !s.ok()) return s;
  std::vector<runtime::TensorType> given;
  for (const Array& input : inputs) given.push_back(input.type);
  runtime::CallTypes types;
  if (Status s = types.Bind(model.shapes(), model.inputs(), model.outputs(), given); !s.ok()) return s;
  for (const Spec& spec : types.outputs()) {
    outputs->push_back({spec.type, false, std::string(spec.type.NumBytes(), '\0')});
  }
  std::vector<double> times;
  for (int run = options.repeat > 1 ? -1 : 0; run < options.repeat; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    if (Status s = model.Run(inputs, outputs); !s.ok()) return s;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (run >= 0) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%.3f ms, the median of %zu (%.3f to %.3f)\n", times[times.size() / 2], times.size(), times.front(),
              times.back());
  return Status();
}

Status Main(const Options& options) {
  StatusOr<Model> model = Model::Open(OwnFolder());
  if (!model.ok()) return model.status();
  if (options.info) PrintInfo(*model);
  if (Status s = model->CheckCompatibility(); !s.ok()) return s;
  if (options.info) {
    std::printf("this machine can run it\n");
    return Status();
  }
  StatusOr<std::vector<Array>> inputs =
      options.random ? RandomInputs(options.seed, *model) : ReadInputs(options.inputs, *model);
  if (!inputs.ok()) return inputs.status();
  std::vector<Array> outputs;
  if (Status s = Execute(*model, options, *inputs, &outputs); !s.ok()) return s;
  if (options.output.empty()) return Status();
  NamedArrays named;
  for (size_t i = 0; i < outputs.size(); ++i) named.emplace_back(model->outputs()[i].name, std::move(outputs[i]));
  return WriteNpz(options.output, named);
}

}  // namespace
}  // namespace inlay::run

int main(int argc, char** argv) {
  inlay::run::Options options;
  if (const int code = inlay::run::ParseOptions(argc, argv, &options); code != 0) return code;
  const inlay::runtime::Status status = inlay::run::Main(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "run: %s\n", status.message().c_str());
  return inlay::run::kFailed;
}
