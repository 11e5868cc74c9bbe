// Where an exported library's parameters are: inside it, or in a safetensors file beside it.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_PARAMS_H_
#define INLAY_CORE_RUNTIME_EXPORTED_PARAMS_H_

#include <string>
#include <vector>

#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

// A read-only mapping of a whole file.
class MappedFile {
 public:
  static StatusOr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  const char* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  MappedFile() = default;
  const char* data_ = nullptr;
  uint64_t size_ = 0;
};

// Addresses of the plan's params in a safetensors file. INVALID_ARGUMENT, naming the file and the tensor, where one is
// missing or has another dtype or shape, or the file is damaged; a file may hold more than is asked for.
StatusOr<std::vector<const void*>> FindSafetensors(const std::string& path, const MappedFile& file,
                                                   const std::vector<NamedTensor>& params);

// Gives the memory of a file-backed mapping's part back to the system; it can still be read.
void DropPages(const void* data, int64_t bytes);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_PARAMS_H_
