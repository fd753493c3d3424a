// SPDX-License-Identifier: Apache-2.0
//
// Cuts the stream of a watch into frames. A frame is one JSON object on one line; the network
// delivers it in pieces cut at any byte. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull_operator {

// An object of Kubernetes is at most 1.5 MiB in etcd, and a few times that as JSON.
inline constexpr size_t kWatchFrameBytesMax = size_t{16} << 20;

// Thread-compatible.
class WatchFrameSplitter {
 public:
  explicit WatchFrameSplitter(size_t frame_bytes_max = kWatchFrameBytesMax)
      : frame_bytes_max_(frame_bytes_max) {}

  // Calls `on_frame` for each frame that is complete with these bytes, in order; empty lines are
  // none. Ends with the first error of `on_frame`. kResourceExhausted when a frame is too long; the
  // stream cannot be used after an error.
  absl::Status Feed(absl::string_view bytes,
                    absl::FunctionRef<absl::Status(absl::string_view frame)> on_frame);

  // Bytes of a frame whose end has not come; what is left when the stream ends is no frame.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const size_t frame_bytes_max_;
  std::string pending_;
};

}  // namespace pushpull_operator
