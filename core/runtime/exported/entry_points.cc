// The functions of an exported library, in tvm-ffi's ABI (core/artifact/FORMAT.md lists them). Only tvm-ffi's C API is
// used, so that nothing it keeps points into this library. No exception leaves a function here.
#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "core/runtime/exported/dlpack_args.h"
#include "core/runtime/exported/library.h"
#include "core/runtime/exported/the_library.h"

namespace inlay::runtime {

Library& TheLibrary() {
  static Library library(inlay_library_table);  // destroyed when the library is unloaded
  return library;
}

namespace {

const char* KindOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "ValueError";
    case Code::kResourceExhausted:
      return "MemoryError";
    default:
      return "RuntimeError";
  }
}

template <typename F>
int SafeCall(F f) {
  Status status;
  try {
    status = f();
  } catch (const std::exception& e) {
    status = Internal(e.what());
  }
  if (status.ok()) return 0;
  TVMFFIErrorSetRaisedFromCStr(KindOf(status.code()), status.message().c_str());
  return -1;
}

std::string Where(const char* kind, size_t i, const NamedTensor& tensor) {
  return std::string(kind) + " " + std::to_string(i) + " '" + tensor.name + "'";
}

// The caller's inputs as dense pointers; what is not dense, or not aligned to its element, is copied. With the types of
// this call.
class Inputs {
 public:
  Status Bind(const ExecutionPlan& plan, const TVMFFIAny* args) {
    static char empty[64] __attribute__((aligned(64)));
    std::vector<TensorType> given;
    for (size_t i = 0; i < plan.inputs.size() && !plan.shapes.empty(); ++i) {
      const NamedTensor& want = plan.inputs[i];
      StatusOr<TensorType> type = GivenType(args[i], want.type, plan.shapes, Where("input", i, want));
      if (!type.ok()) return type.status();
      given.push_back(std::move(*type));
    }
    if (Status s = types_.Bind(plan.shapes, plan.inputs, plan.outputs, given); !s.ok()) return s;
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const NamedTensor& want = types_.inputs()[i];
      if (Status s = CheckTensor(args[i], want, Where("input", i, want)); !s.ok()) return s;
      const DLTensor& tensor = *AsTensor(args[i]);
      const int64_t element = ByteSize(want.type.dtype);
      if (want.type.NumBytes() == 0) {
        data_.push_back(empty);
      } else if (IsDense(tensor) && reinterpret_cast<uintptr_t>(DataOf(tensor)) % element == 0) {
        data_.push_back(DataOf(tensor));
      } else {
        copies_.push_back(AlignedMemory::Allocate(want.type.NumBytes()));
        if (copies_.back().data() == nullptr)
          return ResourceExhausted(Where("input", i, want) + ": no memory to copy it");
        CopyDense(tensor, element, copies_.back().data());
        data_.push_back(copies_.back().data());
      }
    }
    return Status();
  }
  const std::vector<const void*>& data() const { return data_; }
  const CallTypes& types() const { return types_; }

 private:
  CallTypes types_;
  std::vector<const void*> data_;
  std::vector<AlignedMemory> copies_;
};

Status CheckCount(int32_t given, size_t wanted, const char* what) {
  if (given == static_cast<int64_t>(wanted)) return Status();
  return InvalidArgument("expected " + std::to_string(wanted) + " " + what + ", got " + std::to_string(given));
}

// Strong references, let go at the end of the scope unless moved out.
struct Tensors {
  std::vector<TVMFFIObjectHandle> handles;
  // Takes the reference; gives the tensor's memory.
  void* Take(TVMFFIObjectHandle tensor) {
    handles.push_back(tensor);
    return DataOf(*TVMFFITensorGetDLTensorPtr(tensor));
  }
  ~Tensors() {
    for (TVMFFIObjectHandle handle : handles) {
      if (handle != nullptr) TVMFFIObjectDecRef(handle);
    }
  }
};

// None where there is no object.
TVMFFIAny AsAny(TVMFFIObjectHandle tensor) {
  TVMFFIAny any = {};
  any.type_index = tensor == nullptr ? kTVMFFINone : kTVMFFITensor;
  any.v_obj = static_cast<TVMFFIObject*>(tensor);
  return any;
}

// One tensor as itself, several as an Array, made inside libtvm_ffi.
Status Return(Tensors* tensors, TVMFFIAny* result) {
  if (tensors->handles.size() == 1) {
    *result = AsAny(tensors->handles[0]);
    tensors->handles[0] = nullptr;
    return Status();
  }
  static constexpr char kName[] = "ffi.Array";
  const TVMFFIByteArray name = {kName, sizeof(kName) - 1};
  TVMFFIObjectHandle make_array = nullptr;
  if (TVMFFIFunctionGetGlobal(&name, &make_array) != 0 || make_array == nullptr) {
    return Internal("this tvm-ffi has no ffi.Array");
  }
  std::vector<TVMFFIAny> items;
  for (TVMFFIObjectHandle tensor : tensors->handles) items.push_back(AsAny(tensor));
  const int rc = TVMFFIFunctionCall(make_array, items.data(), static_cast<int32_t>(items.size()), result);
  TVMFFIObjectDecRef(make_array);
  return rc == 0 ? Status() : Internal("tvm-ffi could not make an Array of the outputs");
}

// What is to be written in place must be the caller's own memory, and overlap no other input.
Status CheckUpdated(const ExecutionPlan& plan, const Inputs& inputs, const TVMFFIAny* args) {
  if (plan.updates.empty()) return Status();
  const std::vector<NamedTensor>& types = inputs.types().inputs();
  std::vector<bool> updated(types.size(), false);
  for (int32_t input : plan.updates) {
    if (input >= 0) updated[input] = true;
  }
  struct Range {
    const char *begin, *end;
    size_t input;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < types.size(); ++i) {
    const int64_t bytes = types[i].type.NumBytes();
    if (bytes == 0) continue;
    const auto* data = static_cast<const char*>(inputs.data()[i]);
    if (updated[i] && data != DataOf(*AsTensor(args[i]))) {
      return InvalidArgument(Where("input", i, types[i]) +
                             " is updated in place: it must be dense, row-major and aligned");
    }
    ranges.push_back({data, data + bytes, i});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  // Of those that begin before: which reaches farthest, of all, and of what is updated.
  const Range *farthest = nullptr, *farthest_updated = nullptr;
  for (const Range& range : ranges) {
    const bool writes = updated[range.input];
    const Range* before = writes ? farthest : farthest_updated;
    if (before != nullptr && range.begin < before->end) {
      const size_t input = writes ? range.input : before->input, other = writes ? before->input : range.input;
      return InvalidArgument(Where("input", input, types[input]) + " is updated in place, and overlaps " +
                             Where("input", other, types[other]));
    }
    if (farthest == nullptr || range.end > farthest->end) farthest = &range;
    if (writes && (farthest_updated == nullptr || range.end > farthest_updated->end)) farthest_updated = &range;
  }
  return Status();
}

// The outputs of a run, and their memory: those that update an input are the caller's own tensors (of a bare DLTensor
// there is no object to give back), others are new.
Status MakeOutputs(const ExecutionPlan& plan, const Inputs& inputs, const TVMFFIAny* args, Tensors* tensors,
                   std::vector<void*>* data) {
  if (Status s = CheckUpdated(plan, inputs, args); !s.ok()) return s;
  const std::vector<NamedTensor>& types = inputs.types().outputs();
  for (size_t o = 0; o < types.size(); ++o) {
    TVMFFIObjectHandle tensor = nullptr;
    const int32_t input = plan.UpdatedBy(o);
    if (input < 0) {
      if (Status s = TheLibrary().results().Get(types[o].type, types.size(), &tensor); !s.ok()) return s;
      data->push_back(tensors->Take(tensor));
      continue;
    }
    if (args[input].type_index == kTVMFFITensor) {
      tensor = args[input].v_obj;
      TVMFFIObjectIncRef(tensor);
    }
    tensors->handles.push_back(tensor);
    data->push_back(const_cast<void*>(inputs.data()[input]));
  }
  return Status();
}

Status Main(const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  StatusOr<std::shared_ptr<const Executor>> executor = TheLibrary().Get();
  if (!executor.ok()) return executor.status();
  const ExecutionPlan& plan = (*executor)->plan();
  if (Status s = CheckCount(num_args, plan.inputs.size(), "inputs"); !s.ok()) return s;
  Inputs inputs;
  if (Status s = inputs.Bind(plan, args); !s.ok()) return s;
  Tensors outputs;
  std::vector<void*> output_data;
  if (Status s = MakeOutputs(plan, inputs, args, &outputs, &output_data); !s.ok()) return s;
  const ShapeValues* shapes = inputs.types().shapes();
  if (Status s = (*executor)->Run(inputs.data().data(), output_data.data(), shapes); !s.ok()) return s;
  return Return(&outputs, result);
}

constexpr int64_t kMaxProfiledRuns = 1 << 20;

// args: how many runs, then the inputs. Gives i64[runs, steps]: nanoseconds.
Status Profile(const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  StatusOr<std::shared_ptr<const Executor>> executor = TheLibrary().Get();
  if (!executor.ok()) return executor.status();
  const ExecutionPlan& plan = (*executor)->plan();
  if (Status s = CheckCount(num_args, 1 + plan.inputs.size(), "arguments (a number of runs, then the inputs)");
      !s.ok()) {
    return s;
  }
  if (args[0].type_index != kTVMFFIInt || args[0].v_int64 < 1 || args[0].v_int64 > kMaxProfiledRuns) {
    return InvalidArgument("the number of runs must be an integer from 1 to " + std::to_string(kMaxProfiledRuns));
  }
  const int64_t runs = args[0].v_int64;
  Inputs inputs;
  if (Status s = inputs.Bind(plan, args + 1); !s.ok()) return s;
  Tensors outputs, times;
  std::vector<void*> output_data;
  if (Status s = MakeOutputs(plan, inputs, args + 1, &outputs, &output_data); !s.ok()) return s;
  const int64_t steps = static_cast<int64_t>(plan.run_steps.size());
  TVMFFIObjectHandle table = nullptr;
  if (Status s = AllocateOutput({DType::kI64, {runs, steps}}, &table); !s.ok()) return s;
  auto* row = static_cast<int64_t*>(times.Take(table));
  for (int64_t run = 0; run < runs; ++run, row += steps) {
    Status s = (*executor)->Profile(inputs.data().data(), output_data.data(), row, inputs.types().shapes());
    if (!s.ok()) return s;
  }
  return Return(&times, result);
}

bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const char* pa = static_cast<const char*>(a);
  const char* pb = static_cast<const char*>(b);
  return a_bytes > 0 && b_bytes > 0 && pa < pb + b_bytes && pb < pa + a_bytes;
}

// No output may overlap another one or an input, but be the one that it updates: compiled code reads inputs after it
// has begun to write.
Status CheckOverlaps(const ExecutionPlan& plan, const CallTypes& types, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const int64_t bytes = types.outputs()[o].type.NumBytes();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (plan.UpdatedBy(o) == static_cast<int64_t>(i) && outputs[o] == inputs[i]) continue;
      if (Overlap(outputs[o], bytes, inputs[i], types.inputs()[i].type.NumBytes())) {
        return InvalidArgument(Where("output", o, types.outputs()[o]) + " overlaps " +
                               Where("input", i, types.inputs()[i]));
      }
    }
    for (size_t p = 0; p < o; ++p) {
      if (Overlap(outputs[o], bytes, outputs[p], types.outputs()[p].type.NumBytes())) {
        return InvalidArgument(Where("output", o, types.outputs()[o]) + " overlaps output " + std::to_string(p));
      }
    }
  }
  return Status();
}

Status MainInto(const TVMFFIAny* args, int32_t num_args) {
  StatusOr<std::shared_ptr<const Executor>> executor = TheLibrary().Get();
  if (!executor.ok()) return executor.status();
  const ExecutionPlan& plan = (*executor)->plan();
  const size_t num_inputs = plan.inputs.size();
  if (Status s = CheckCount(num_args, num_inputs + plan.outputs.size(), "inputs and outputs"); !s.ok()) return s;
  Inputs inputs;
  if (Status s = inputs.Bind(plan, args); !s.ok()) return s;
  std::vector<void*> outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const NamedTensor& want = inputs.types().outputs()[i];
    const std::string where = Where("output", i, want);
    if (Status s = CheckTensor(args[num_inputs + i], want, where); !s.ok()) return s;
    const DLTensor& tensor = *AsTensor(args[num_inputs + i]);
    void* data = DataOf(tensor);
    if (!IsDense(tensor) || reinterpret_cast<uintptr_t>(data) % ByteSize(want.type.dtype) != 0) {
      return InvalidArgument(where + ": must be dense, row-major and aligned");
    }
    outputs.push_back(data);
  }
  if (Status s = CheckOverlaps(plan, inputs.types(), inputs.data(), outputs); !s.ok()) return s;
  return (*executor)->Run(inputs.data().data(), outputs.data(), inputs.types().shapes());
}

// The text of a string argument, in whichever of tvm-ffi's forms.
bool AsString(const TVMFFIAny& arg, std::string* text) {
  switch (arg.type_index) {
    case kTVMFFIRawStr:
      *text = arg.v_c_str;
      return true;
    case kTVMFFISmallStr:
      text->assign(arg.v_bytes, arg.small_str_len);
      return true;
    case kTVMFFIStr: {
      const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(arg.v_obj);
      text->assign(bytes->data, bytes->size);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace
}  // namespace inlay::runtime

#define INLAY_EXPORT extern "C" __attribute__((visibility("default"))) int

using inlay::runtime::TheLibrary;

INLAY_EXPORT __tvm_ffi_main(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  return inlay::runtime::SafeCall([&] { return inlay::runtime::Main(args, num_args, result); });
}

INLAY_EXPORT __tvm_ffi_main_into(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  return inlay::runtime::SafeCall([&] { return inlay::runtime::MainInto(args, num_args); });
}

// profile(runs, inputs...): i64[runs, steps], the nanoseconds of each of the plan's run steps.
INLAY_EXPORT __tvm_ffi_profile(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  return inlay::runtime::SafeCall([&] { return inlay::runtime::Profile(args, num_args, result); });
}

// load() or load(params_path): everything that the first call would do otherwise.
INLAY_EXPORT __tvm_ffi_load(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  return inlay::runtime::SafeCall([&]() -> inlay::runtime::Status {
    std::string path;
    if (num_args > 1 || (num_args == 1 && !inlay::runtime::AsString(args[0], &path))) {
      return inlay::runtime::InvalidArgument("load takes the path of the parameters' file, or nothing");
    }
    if (num_args == 1) {
      if (inlay::runtime::Status s = TheLibrary().SetParamsPath(path); !s.ok()) return s;
    }
    return TheLibrary().Get().status();
  });
}

INLAY_EXPORT __tvm_ffi_set_num_threads(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  return inlay::runtime::SafeCall([&]() -> inlay::runtime::Status {
    if (num_args != 1 || args[0].type_index != kTVMFFIInt || args[0].v_int64 != static_cast<int>(args[0].v_int64)) {
      return inlay::runtime::InvalidArgument("set_num_threads takes one integer");
    }
    return TheLibrary().SetNumThreads(static_cast<int>(args[0].v_int64));
  });
}

// Raises what hinders this machine from running it: the CPU, a missing shared library. No parameter is touched.
INLAY_EXPORT __tvm_ffi_check_compatibility(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  return inlay::runtime::SafeCall([] { return TheLibrary().CheckCompatibility(); });
}

// The manifest with the plan, as JSON; needs nothing loaded.
INLAY_EXPORT __tvm_ffi_get_metadata(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  return inlay::runtime::SafeCall([&]() -> inlay::runtime::Status {
    const std::string manifest = TheLibrary().manifest();
    const TVMFFIByteArray bytes = {manifest.data(), manifest.size()};
    return TVMFFIStringFromByteArray(&bytes, result) == 0 ? inlay::runtime::Status()
                                                          : inlay::runtime::Internal("no memory for the metadata");
  });
}
