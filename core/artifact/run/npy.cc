#include "core/artifact/run/npy.h"

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace inlay::run {
namespace {

using runtime::DType;
using runtime::InvalidArgument;
using runtime::Status;
using runtime::StatusOr;

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;

// Little-endian, as NumPy names them; V2 is what it makes of ml_dtypes' bfloat16.
const std::map<std::string, DType>& DTypes() {
  static const auto* dtypes = new std::map<std::string, DType>{
      {"<f4", DType::kF32},  {"<f8", DType::kF64}, {"<f2", DType::kF16}, {"<V2", DType::kBF16},
      {"|V2", DType::kBF16}, {"|i1", DType::kI8},  {"|u1", DType::kU8},  {"<i2", DType::kI16},
      {"<i4", DType::kI32},  {"<i8", DType::kI64}, {"|b1", DType::kBool}};
  return *dtypes;
}

// What stands behind 'key': in the header, a Python dict; "" where it does not.
std::string Entry(const std::string& header, const std::string& key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  at = header.find(':', at);
  if (at == std::string::npos) return "";
  at = header.find_first_not_of(' ', at + 1);
  if (at == std::string::npos) return "";
  const char close = header[at] == '\'' ? '\'' : header[at] == '(' ? ')' : ',';
  const size_t end = header.find(close, at + 1);
  if (end == std::string::npos) return "";
  return header.substr(at, close == ',' ? end - at : end - at + 1);
}

bool ParseShape(const std::string& text, std::vector<int64_t>* shape) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return false;
  std::istringstream words(text.substr(1, text.size() - 2));
  for (std::string word; std::getline(words, word, ',');) {
    if (word.find_first_not_of(' ') == std::string::npos) continue;
    std::istringstream number(word);
    int64_t extent = -1;
    number >> extent;
    if (extent < 0) return false;
    shape->push_back(extent);
  }
  return true;
}

}  // namespace

StatusOr<Array> ParseNpy(const std::string& bytes) {
  if (bytes.size() < 10 || bytes.compare(0, kMagicBytes, kMagic, kMagicBytes) != 0) {
    return InvalidArgument("is no .npy file");
  }
  const int major = bytes[6];
  const size_t length_bytes = major == 1 ? 2 : 4, begin = 8 + length_bytes;
  if (major < 1 || major > 3 || bytes.size() < begin)
    return InvalidArgument("is of a version of .npy that is not known");
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, length_bytes);
  if (length > bytes.size() - begin) return InvalidArgument("ends within its header");
  const std::string header = bytes.substr(begin, length), descr = Entry(header, "descr");
  Array array;
  const auto dtype = descr.size() < 2 ? DTypes().end() : DTypes().find(descr.substr(1, descr.size() - 2));
  if (dtype == DTypes().end()) return InvalidArgument("has the dtype " + descr + ", which no model takes");
  array.type.dtype = dtype->second;
  array.fortran_order = Entry(header, "fortran_order") == "True";
  if (!ParseShape(Entry(header, "shape"), &array.type.shape)) return InvalidArgument("has no shape");
  array.data = bytes.substr(begin + length);
  if (array.type.NumBytes() != static_cast<int64_t>(array.data.size())) {
    return InvalidArgument("has " + std::to_string(array.data.size()) + " bytes of data, not those of " +
                           array.type.ToString());
  }
  return array;
}

std::string FormatNpy(const Array& array) {
  std::string descr, shape;
  for (const auto& [name, dtype] : DTypes()) {
    if (dtype == array.type.dtype && descr.empty()) descr = name;
  }
  for (int64_t extent : array.type.shape) shape += std::to_string(extent) + ",";
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + (array.fortran_order ? "True" : "False") +
                       ", 'shape': (" + shape + "), }";
  constexpr size_t kPrefix = 10, kAlign = 64;
  header.resize((kPrefix + header.size() + 1 + kAlign - 1) / kAlign * kAlign - kPrefix - 1, ' ');
  header.push_back('\n');
  std::string bytes(kMagic, kMagicBytes);
  bytes += std::string("\x01\x00", 2);
  const auto length = static_cast<uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + header + array.data;
}

StatusOr<Array> ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  if (!file || !(bytes << file.rdbuf())) return InvalidArgument(path + ": can't be read");
  StatusOr<Array> array = ParseNpy(bytes.str());
  if (!array.ok()) return InvalidArgument(path + " " + array.status().message());
  return array;
}

}  // namespace inlay::run
