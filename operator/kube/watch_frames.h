// SPDX-License-Identifier: Apache-2.0
//
// Splits the stream of a watch into frames: one JSON object on one line, which arrives in arbitrary
// pieces. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "operator/kube/bounded_append.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {

// An object is at most 1.5 MiB in etcd, and a few times that as JSON. Same limit as for a response.
inline constexpr size_t kWatchFrameBytesMax = size_t{8} << 20;

// Thread-compatible.
class WatchFrameSplitter {
 public:
  explicit WatchFrameSplitter(size_t frame_bytes_max = kWatchFrameBytesMax)
      : frame_bytes_max_(frame_bytes_max) {}

  // Calls `on_frame` for each frame that these bytes complete, in order, skipping empty lines.
  // Returns the first error of `on_frame`, or kResourceExhausted if a frame is too long; the
  // splitter cannot be used after an error.
  absl::Status Feed(absl::string_view bytes,
                    absl::FunctionRef<absl::Status(absl::string_view frame)> on_frame) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const absl::string_view piece = bytes.substr(0, end);
      if (pending_.size() + piece.size() > frame_bytes_max_) {
        return absl::ResourceExhaustedError(absl::StrCat("a frame of the watch has more than ",
                                                         frame_bytes_max_,
                                                         " bytes; list the objects instead"));
      }
      if (end == absl::string_view::npos) {
        BoundedAppend(piece, frame_bytes_max_, pending_);
        return absl::OkStatus();
      }
      bytes.remove_prefix(end + 1);
      // A frame that arrives in one piece is not copied. A joined one frees its memory after use.
      if (!pending_.empty()) BoundedAppend(piece, frame_bytes_max_, pending_);
      const std::string joined = std::exchange(pending_, {});
      const absl::string_view line = absl::StripSuffix(joined.empty() ? piece : joined, "\r");
      if (!line.empty()) PUSHPULL_RETURN_IF_ERROR(on_frame(line));
    }
    return absl::OkStatus();
  }

  // Bytes of an incomplete frame.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const size_t frame_bytes_max_;
  std::string pending_;
};

}  // namespace pushpull_operator
