// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the value of an Accept header: no crash, and an answer that has a Content-Type.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

#include "runtime/base/check.h"
#include "runtime/metrics/metrics_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view accept(reinterpret_cast<const char*>(data), size);
  PUSHPULL_CHECK(!pushpull::ContentType(pushpull::FormatFor(accept)).empty());
  return 0;
}
