// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/idx_file.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr uint32_t kUnsignedBytes = 0x08;  // the magic is 0, 0, type of the values, dimensions
constexpr size_t kPieceBytes = size_t{1} << 20;

uint32_t ReadBigEndian(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         uint32_t{bytes[3]};
}

// The product of `dims`; nothing if it exceeds kIdxValuesMax.
std::optional<uint64_t> NumValues(const std::vector<uint32_t>& dims) {
  uint64_t product = 1;
  for (const uint32_t dim : dims) {
    product *= dim;  // no overflow: of numbers below 2^31 and 2^32
    if (product > kIdxValuesMax) return std::nullopt;
  }
  return product;
}

std::string DimsToString(const std::vector<uint32_t>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

// The uncompressed bytes of a file, in order. zlib passes uncompressed files through.
class Source {
 public:
  static absl::StatusOr<Source> Open(const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
    }
    errno = 0;
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) return absl::ErrnoToStatus(errno != 0 ? errno : ENOMEM, path);
    return Source(path, file);
  }

  // Fills `out` and returns its size, or less if the file ends earlier.
  absl::StatusOr<size_t> Read(std::span<uint8_t> out) {
    PUSHPULL_CHECK(out.size() <= kPieceBytes);
    const int num_read = gzread(file_.get(), out.data(), static_cast<unsigned>(out.size()));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    // A truncated compressed file causes an error only after what could be decompressed.
    if (num_read < 0 || code != Z_OK) {
      if (code == Z_ERRNO) return absl::ErrnoToStatus(errno, path_);
      return absl::DataLossError(absl::StrCat(path_, ": cannot be unpacked: ", message));
    }
    return static_cast<size_t>(num_read);
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  Source(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

absl::StatusOr<std::vector<uint32_t>> ReadDims(Source& source,
                                               const std::string& path,
                                               size_t num_dims) {
  std::vector<uint8_t> header(4 + 4 * num_dims);
  PUSHPULL_ASSIGN_OR_RETURN(const size_t num_read, source.Read(header));
  const uint32_t magic = ReadBigEndian(header);
  const uint32_t expected_magic = kUnsignedBytes << 8 | static_cast<uint32_t>(num_dims);
  if (num_read >= 4 && magic != expected_magic) {
    return absl::DataLossError(absl::StrFormat(
        "%s: starts with 0x%08x, expected 0x%08x (IDX, unsigned bytes, %d dimensions)",
        path,
        magic,
        expected_magic,
        num_dims));
  }
  if (num_read < header.size()) {
    return absl::DataLossError(absl::StrCat(
        path, ": has ", num_read, " bytes, expected at least the ", header.size(), " of a header"));
  }
  std::vector<uint32_t> dims;
  for (size_t i = 4; i < header.size(); i += 4) {
    dims.push_back(ReadBigEndian(std::span(header).subspan(i)));
  }
  return dims;
}

absl::StatusOr<std::vector<uint8_t>> ReadValues(Source& source,
                                                const std::string& path,
                                                const std::vector<uint32_t>& dims) {
  const std::optional<uint64_t> num_values = NumValues(dims);
  if (!num_values) {
    constexpr absl::string_view kText = "$0: claims to hold $1, expected at most $2 values";
    return absl::DataLossError(absl::Substitute(kText, path, DimsToString(dims), kIdxValuesMax));
  }
  std::vector<uint8_t> values;
  while (values.size() < *num_values) {
    const size_t begin = values.size();
    values.resize(begin + std::min<size_t>(kPieceBytes, *num_values - begin));
    PUSHPULL_ASSIGN_OR_RETURN(const size_t num_read, source.Read(std::span(values).subspan(begin)));
    if (begin + num_read < values.size()) {
      constexpr absl::string_view kText = "$0: has $1 values, expected $2 for $3";
      return absl::DataLossError(
          absl::Substitute(kText, path, begin + num_read, *num_values, DimsToString(dims)));
    }
  }
  // This read also checks the checksum of a compressed file.
  uint8_t rest = 0;
  PUSHPULL_ASSIGN_OR_RETURN(const size_t num_rest, source.Read({&rest, 1}));
  if (num_rest > 0) {
    return absl::DataLossError(absl::StrCat(
        path, ": goes on after the ", *num_values, " values expected for ", DimsToString(dims)));
  }
  return values;
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, size_t num_dims) {
  PUSHPULL_CHECK(num_dims >= 1 && num_dims <= 255);
  PUSHPULL_ASSIGN_OR_RETURN(Source source, Source::Open(path));
  IdxArray array;
  PUSHPULL_ASSIGN_OR_RETURN(array.dims, ReadDims(source, path, num_dims));
  PUSHPULL_ASSIGN_OR_RETURN(array.values, ReadValues(source, path, array.dims));
  return array;
}

}  // namespace pushpull
