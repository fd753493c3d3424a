// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/train/idx_bytes.h"

#define ZLIB_CONST  // next_in points to const
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include <gtest/gtest.h>

namespace pushpull {

std::vector<uint8_t> IdxBytes(const std::vector<uint32_t>& dims,
                              const std::vector<uint8_t>& values) {
  std::vector<uint8_t> bytes = {0, 0, 8, static_cast<uint8_t>(dims.size())};
  for (const uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(dim >> shift));
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

std::vector<uint8_t> Gzip(const std::vector<uint8_t>& bytes) {
  constexpr int kGzipWindowBits = 15 + 16;
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits, 8, Z_DEFAULT_STRATEGY),
            Z_OK);
  std::vector<uint8_t> packed(deflateBound(&stream, bytes.size()));
  stream.next_in = bytes.data();
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<unsigned>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void WriteFile(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good()) << path;
}

TestFolder::TestFolder() : path_(testing::TempDir() + "pushpull_idx_XXXXXX") {
  EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
}

TestFolder::~TestFolder() {
  std::error_code ignored;  // what is left is in the folder for temporary files
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace pushpull
