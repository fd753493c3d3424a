// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the stream of a watch, cut anywhere: the frames do not depend on the cuts, and no
// frame can end the process. Input: a byte for the length of the pieces, then the stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "operator/api/lease.h"
#include "operator/kube/watch_event.h"
#include "operator/kube/watch_frames.h"
#include "runtime/base/check.h"

namespace {

using pushpull_operator::WatchFrameSplitter;

std::vector<std::string> FramesOf(absl::string_view stream, size_t piece_bytes) {
  WatchFrameSplitter splitter(4096);
  std::vector<std::string> frames;
  for (size_t i = 0; i < stream.size(); i += piece_bytes) {
    const absl::Status status =
        splitter.Feed(stream.substr(i, piece_bytes), [&](absl::string_view frame) {
          PUSHPULL_CHECK(!frame.empty() && frame.find('\n') == absl::string_view::npos);
          frames.emplace_back(frame);
          return absl::OkStatus();
        });
    PUSHPULL_CHECK(splitter.pending_bytes() <= 4096);
    if (!status.ok()) break;
  }
  return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);

  const std::vector<std::string> frames = FramesOf(stream, std::max<size_t>(stream.size(), 1));

  PUSHPULL_CHECK(FramesOf(stream, size_t{data[0]} + 1) == frames);
  for (const std::string& frame : frames) {
    const absl::StatusOr<pushpull_operator::WatchEvent> event =
        pushpull_operator::DecodeWatchEvent(frame);
    if (!event.ok() || event->object.json == nullptr) continue;
    pushpull_operator::DecodeLease(event->object).IgnoreError();
    ToText(event->object);
  }
  return 0;
}
