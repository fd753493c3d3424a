// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an IDX file: no crash, and what is accepted has as many values as its dimensions
// say. Input: the number of dimensions to expect, then the file, compressed or not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/train/idx_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int file = memfd_create("idx", MFD_CLOEXEC);
  PUSHPULL_CHECK(write(file, data + 1, size - 1) == static_cast<ssize_t>(size - 1));
  const size_t num_dims = 1 + data[0] % 4;

  const absl::StatusOr<pushpull::IdxArray> array =
      pushpull::ReadIdxFile(absl::StrCat("/proc/self/fd/", file), num_dims);

  if (array.ok()) {
    PUSHPULL_CHECK(array->dims.size() == num_dims);
    size_t num_values = 1;
    for (const uint32_t dim : array->dims) num_values *= dim;
    PUSHPULL_CHECK(num_values == array->values.size());
  } else {
    PUSHPULL_CHECK(!array.status().message().empty());
  }
  close(file);
  return 0;
}
