// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/watch_frames.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

absl::string_view WithoutCarriageReturn(absl::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

absl::Status WatchFrameSplitter::Feed(
    absl::string_view bytes, absl::FunctionRef<absl::Status(absl::string_view frame)> on_frame) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, end);
    if (pending_.size() + piece.size() > frame_bytes_max_) {
      return absl::ResourceExhaustedError(absl::StrCat("a frame of the watch has more than ",
                                                       frame_bytes_max_,
                                                       " bytes; list the objects instead"));
    }
    if (end == absl::string_view::npos) {
      absl::StrAppend(&pending_, piece);
      return absl::OkStatus();
    }
    bytes.remove_prefix(end + 1);
    // A frame that arrives in one piece is not copied.
    const std::string joined = pending_.empty() ? "" : absl::StrCat(pending_, piece);
    std::string().swap(pending_);  // frees the memory of a long frame
    const absl::string_view line = WithoutCarriageReturn(joined.empty() ? piece : joined);
    if (!line.empty()) PUSHPULL_RETURN_IF_ERROR(on_frame(line));
  }
  return absl::OkStatus();
}

}  // namespace pushpull_operator
