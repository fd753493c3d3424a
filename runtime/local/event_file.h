// SPDX-License-Identifier: Apache-2.0
//
// Event files of TensorBoard: records of TFRecord with messages of type tensorflow.Event, of which
// this writes scalars only. The few fields are encoded here, in protobuf's wire format, so that
// nothing depends on TensorFlow's definitions.
//
// Source: TensorFlow's RecordWriter, and its messages Event (wall_time 1, step 2, file_version 3,
// summary 5), Summary (value 1) and Summary.Value (tag 1, simple_value 2).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

struct Scalar {
  std::string tag;
  float value = 0;
};

// Castagnoli's CRC (RFC 3720, appendix B.4).
uint32_t Crc32c(absl::string_view bytes);
// A record: length, its checksum, `data`, and the checksum of that.
std::string EventRecord(absl::string_view data);
// An event with scalars of one step. `time`: seconds since 1970.
std::string ScalarEvent(double time, uint64_t step, const std::vector<Scalar>& scalars);

// Thread-compatible.
class EventFile {
 public:
  // Creates the folder, and in it a file that is newer than those of earlier runs. Blocks on the
  // disk. The error names the path.
  static absl::StatusOr<EventFile> Create(const std::string& folder, double time);

  const std::string& path() const { return path_; }
  // A reader sees it at once.
  absl::Status Append(double time, uint64_t step, const std::vector<Scalar>& scalars);

 private:
  EventFile(std::string path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Write(absl::string_view event);

  std::string path_;
  std::ofstream file_;
};

}  // namespace pushpull
