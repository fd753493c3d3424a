// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an answer of the API server: a list, an object, a Lease, a TrainingJob, a Pod, a
// refusal. Nothing ends the process, each item of a list is read as it would be alone, a refusal
// comes back out of its status as it went in, a lease and a status that are written can be read,
// and a status that was read needs no write.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/lease.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/kube/api_error.h"
#include "operator/kube/json_reader.h"
#include "operator/kube/object.h"
#include "runtime/base/check.h"

namespace {

using pushpull_operator::TrainingJobStatus;

void ReadJob(const pushpull_operator::Object& object) {
  const TrainingJobStatus status = DecodeTrainingJobObject(object).status;
  PUSHPULL_CHECK(StatusPatchText(status, status, "1").empty());
  const std::string patch = StatusPatchText({}, status, "1");
  if (patch.empty()) return;
  const absl::StatusOr<pushpull_operator::Object> written = pushpull_operator::ParseObject(patch);
  PUSHPULL_CHECK(written.ok());
  PUSHPULL_CHECK(StatusPatchText(DecodeTrainingJobObject(*written).status, status, "1").empty());
}

void ReadList(absl::string_view text) {
  std::vector<pushpull_operator::ReadValue> items;
  const std::optional<nlohmann::json> rest = pushpull_operator::ReadEnvelope(
      text, "items", pushpull_operator::Holds::kList, [&](pushpull_operator::ReadValue item) {
        items.push_back(std::move(item));
      });
  if (!rest) return;
  for (const pushpull_operator::ReadValue& item : items) {
    const auto alone = pushpull_operator::ReadJson(item.json.dump());
    PUSHPULL_CHECK(alone.has_value() && alone->json == item.json);
    const auto object = pushpull_operator::DecodeObject(item.json, item.problem);
    if (object.ok()) ReadJob(*object);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);

  const pushpull_operator::ApiError error = pushpull_operator::DecodeApiError(500, text);
  const absl::Status status = ToStatus(error, "get pods default/a");
  PUSHPULL_CHECK(!status.ok());
  PUSHPULL_CHECK(pushpull_operator::ApiErrorOf(status).has_value());
  PUSHPULL_CHECK(pushpull_operator::ApiErrorOf(status)->code == error.code);

  ReadList(text);
  const absl::StatusOr<pushpull_operator::Object> object = pushpull_operator::ParseObject(text);
  if (!object.ok()) return 0;
  PUSHPULL_CHECK(pushpull_operator::ParseObject(ToText(*object)).ok());
  ReadJob(*object);
  pushpull_operator::DecodePod(*object);
  const absl::StatusOr<pushpull_operator::LeaseRecord> lease =
      pushpull_operator::DecodeLease(*object);
  if (!lease.ok()) return 0;
  const std::string changed = pushpull_operator::ChangedLeaseText(*object, *lease);
  const absl::StatusOr<pushpull_operator::Object> written = pushpull_operator::ParseObject(changed);
  PUSHPULL_CHECK(written.ok());
  PUSHPULL_CHECK(pushpull_operator::DecodeLease(*written)->transitions == lease->transitions);
  return 0;
}
