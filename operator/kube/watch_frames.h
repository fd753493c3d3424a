// SPDX-License-Identifier: Apache-2.0
//
// Splits the stream of a watch into frames: one JSON object on one line, which arrives in arbitrary
// pieces. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull_operator {

// An object is at most 1.5 MiB in etcd, and a few times that as JSON.
inline constexpr size_t kWatchFrameBytesMax = size_t{16} << 20;

// Thread-compatible.
class WatchFrameSplitter {
 public:
  explicit WatchFrameSplitter(size_t frame_bytes_max = kWatchFrameBytesMax)
      : frame_bytes_max_(frame_bytes_max) {}

  // Calls `on_frame` for each frame that these bytes complete, in order, skipping empty lines.
  // Returns the first error of `on_frame`, or kResourceExhausted if a frame is too long; the
  // splitter cannot be used after an error.
  absl::Status Feed(absl::string_view bytes,
                    absl::FunctionRef<absl::Status(absl::string_view frame)> on_frame);

  // Bytes of an incomplete frame.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const size_t frame_bytes_max_;
  std::string pending_;
};

}  // namespace pushpull_operator
