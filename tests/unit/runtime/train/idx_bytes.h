// SPDX-License-Identifier: Apache-2.0
//
// Makes IDX files for the tests of this folder, good and bad ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pushpull {

// A header that claims `dims`, big-endian, followed by `values`.
std::vector<uint8_t> IdxBytes(const std::vector<uint32_t>& dims,
                              const std::vector<uint8_t>& values);

// `bytes` as gzip packs them.
std::vector<uint8_t> Gzip(const std::vector<uint8_t>& bytes);

void WriteFile(const std::string& path, const std::vector<uint8_t>& bytes);

// An empty folder of its owner alone, removed with it.
class TestFolder {
 public:
  TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pushpull
