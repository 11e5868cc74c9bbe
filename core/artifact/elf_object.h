// ElfObject: a relocatable ELF file made by hand, for what the linker is to put into a library besides compiled code:
// tables of addresses, jumps through them, and sections whose bytes are streamed, so that hundreds of megabytes of
// parameters never lie in memory.
#ifndef INLAY_CORE_ARTIFACT_ELF_OBJECT_H_
#define INLAY_CORE_ARTIFACT_ELF_OBJECT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace inlay::artifact {

class ElfObject {
 public:
  using Sink = std::function<absl::Status(absl::string_view)>;
  // Gives a section's bytes to the sink, in pieces; exactly as many as were announced.
  using Writer = std::function<absl::Status(const Sink&)>;

  enum class Machine { kX86_64, kAArch64 };
  explicit ElfObject(Machine machine) : machine_(machine) {}

  struct SectionOptions {
    bool writable = false;  // relocated when loaded
    bool large = false;     // x86-64: may lie further than 2 GiB from the code
    bool executable = false;
    uint64_t align = 64;
  };
  // Each answers an index for the other calls.
  int AddSection(std::string name, uint64_t size, Writer writer, SectionOptions options);
  int AddSection(std::string name, std::string data, SectionOptions options);
  int AddSymbol(std::string name, int section, uint64_t size, uint64_t offset = 0);  // hidden
  int AddUndefined(std::string name);
  // The 8 bytes at `offset` become the address of `symbol`.
  void AddPointer(int section, uint64_t offset, int symbol);
  // x86-64: the 4 bytes at `offset` become how far `symbol` + addend is from them.
  void AddDistance(int section, uint64_t offset, int symbol, int64_t addend);

  absl::Status WriteTo(const std::string& path) const;

 private:
  struct Relocation {
    uint64_t offset;
    int symbol;
    uint32_t type;
    int64_t addend;
  };
  struct Section {
    std::string name;
    uint64_t size;
    Writer writer;
    SectionOptions options;
    std::vector<Relocation> relocations;
  };
  struct Symbol {
    std::string name;
    int section;  // -1: undefined
    uint64_t size, offset;
  };
  const Machine machine_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
};

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_ELF_OBJECT_H_
