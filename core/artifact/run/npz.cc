// Zip files are minizip's and zlib's work.
#include <minizip/unzip.h>
#include <minizip/zip.h>

#include <algorithm>
#include <memory>

#include "core/artifact/run/npy.h"

namespace inlay::run {
namespace {

using runtime::InvalidArgument;
using runtime::Status;
using runtime::StatusOr;

constexpr uint64_t kMost = uint64_t{1} << 40;  // bytes of an array: more is a damaged file
constexpr unsigned kPiece = 1u << 30;          // minizip counts in unsigned

// The file that the reader is at.
StatusOr<std::string> ReadCurrent(unzFile zip, uint64_t size) {
  if (size > kMost) return InvalidArgument("is damaged");
  if (unzOpenCurrentFile(zip) != UNZ_OK) return InvalidArgument("is packed in a way that is not known");
  std::string bytes(size, '\0');
  for (uint64_t at = 0; at < size;) {
    const int got = unzReadCurrentFile(zip, bytes.data() + at, std::min<uint64_t>(size - at, kPiece));
    if (got <= 0) break;
    at += got;
    if (at == size && unzCloseCurrentFile(zip) == UNZ_OK) return bytes;  // which compares the checksum
  }
  return InvalidArgument("is damaged");
}

}  // namespace

StatusOr<NamedArrays> ReadNpz(const std::string& path) {
  const std::unique_ptr<void, int (*)(unzFile)> zip(unzOpen64(path.c_str()),
                                                    [](unzFile file) { return file == nullptr ? 0 : unzClose(file); });
  if (zip == nullptr) return InvalidArgument(path + ": can't be read, or is no .npz file");
  NamedArrays arrays;
  for (int at = unzGoToFirstFile(zip.get()); at == UNZ_OK; at = unzGoToNextFile(zip.get())) {
    unz_file_info64 info;
    char name[1024];
    if (unzGetCurrentFileInfo64(zip.get(), &info, name, sizeof(name) - 1, nullptr, 0, nullptr, 0) != UNZ_OK ||
        info.size_filename >= sizeof(name) - 1) {
      return InvalidArgument(path + " is damaged");
    }
    name[info.size_filename] = '\0';
    std::string key = name;
    if (key.size() > 4 && key.compare(key.size() - 4, 4, ".npy") == 0) key.resize(key.size() - 4);
    StatusOr<std::string> bytes = ReadCurrent(zip.get(), info.uncompressed_size);
    if (!bytes.ok()) return InvalidArgument(path + ": '" + key + "' " + bytes.status().message());
    StatusOr<Array> array = ParseNpy(*bytes);
    if (!array.ok()) return InvalidArgument(path + ": '" + key + "' " + array.status().message());
    arrays.emplace_back(key, std::move(*array));
  }
  return arrays;
}

Status WriteNpz(const std::string& path, const NamedArrays& arrays) {
  zipFile zip = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  if (zip == nullptr) return InvalidArgument(path + ": can't be written");
  bool ok = true;
  for (const auto& [name, array] : arrays) {
    const std::string bytes = FormatNpy(array);
    zip_fileinfo info = {};
    info.dosDate = (1 << 21) | (1 << 16);  // 1980-01-01, the first that there is
    const bool zip64 = bytes.size() >= 0xffffffff;
    ok = ok && zipOpenNewFileInZip64(zip, (name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0, nullptr, 0, 0,
                                     zip64) == ZIP_OK;
    for (size_t at = 0; ok && at < bytes.size(); at += kPiece) {
      ok = zipWriteInFileInZip(zip, bytes.data() + at, std::min<size_t>(bytes.size() - at, kPiece)) == ZIP_OK;
    }
    ok = ok && zipCloseFileInZip(zip) == ZIP_OK;
  }
  ok = zipClose(zip, nullptr) == ZIP_OK && ok;
  return ok ? Status() : InvalidArgument(path + ": can't be written");
}

}  // namespace inlay::run
